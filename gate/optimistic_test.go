package gate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

var errStale = errors.New("somebody else has changed the account: read it again")

// withdraw takes 30 with an optimistic lock: the row must still be of the
// version that was read. It says that nobody came in between. It can't say that
// this very withdrawal has been made before: a later delivery reads the new
// version, and finds it unchanged.
func withdraw(ctx context.Context, tx pgx.Tx) (balance int, err error) {
	var version int
	if err := tx.QueryRow(ctx, "SELECT data_version FROM accounts").Scan(&version); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, `UPDATE accounts SET balance = balance - 30, data_version = data_version + 1
		WHERE data_version = $1 RETURNING balance`, version).Scan(&balance)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, errStale
	}
	return balance, err
}

// locked makes the withdrawal with the optimistic lock alone.
func locked(ctx context.Context, pool *pgxpool.Pool) (balance int, err error) {
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		balance, err = withdraw(ctx, tx)
		return err
	})
	return balance, err
}

// once makes the same withdrawal through the runner.
func once(t testing.TB, on ledger.Executor) (ledger.Answer[int], error) {
	t.Helper()
	op, err := ledger.NewOperation(ledger.OperationOptions[struct{}, int]{ID: "withdraw"})
	require.NoError(t, err)
	scope, err := ledger.NewScope(ledger.Platform(), "queue withdrawals")
	require.NoError(t, err)
	key, err := ledger.ParseClientKey("0190b4f2-7c3e-7a66-9f1d-2f6b7d1c9e55")
	require.NoError(t, err)
	return op.Run(t.Context(), on, scope, key, struct{}{}, func(ctx context.Context, tx pgx.Tx, _ struct{}) (int, error) {
		return withdraw(ctx, tx)
	})
}

// account makes an account of 100.
func account(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool := itest.Pool(t, ledgertest.Database(t))
	_, err := pool.Exec(t.Context(), `CREATE TABLE accounts (balance int, data_version int);
		INSERT INTO accounts VALUES (100, 1)`)
	require.NoError(t, err)
	return pool
}

// withoutValkey is a runner whose Valkey can't be reached.
func withoutValkey(t testing.TB, pool *pgxpool.Pool) *gate.Runner {
	t.Helper()
	front, err := gate.New(gate.Config{Valkey: valkey.ClientOption{InitAddress: []string{"127.0.0.1:1"}}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, front.Close(context.WithoutCancel(t.Context()))) })
	require.NoError(t, front.Start(t.Context()))
	runner, err := gate.NewRunner(gate.RunnerConfig{Ledger: ledgertest.Store(t, pool), Gate: front})
	require.NoError(t, err)
	return runner
}

// TestOptimisticLockLetsAReplayThrough: with Valkey down, a version on the row
// stops a concurrent duplicate and not a sequential one. The ledger stops both.
func TestOptimisticLockLetsAReplayThrough(t *testing.T) {
	t.Parallel()
	pool := account(t)
	for _, want := range []int{70, 40} {
		balance, err := locked(t.Context(), pool)
		require.NoError(t, err)
		require.Equal(t, want, balance, "the same withdrawal, made again")
	}

	pool = account(t)
	runner := withoutValkey(t, pool)
	for i := range 3 {
		answer, err := once(t, runner.Executor())
		require.NoError(t, err)
		require.Equal(t, 70, answer.Value())
		require.Equal(t, i > 0, answer.Replayed())
	}
	var balance, version int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT balance, data_version FROM accounts").Scan(&balance, &version))
	require.Equal(t, 70, balance)
	require.Equal(t, 2, version)
}

// Optimistic locking is not idempotency: a message that is delivered twice, one
// after the other, passes the check of the row's version twice.
func ExampleRunner_optimisticLocking() {
	itest.Example(func(t testing.TB) {
		pool := account(t)
		for range 2 {
			balance, err := locked(t.Context(), pool)
			fmt.Println("data_version alone:", balance, err)
		}
		pool = account(t)
		runner := withoutValkey(t, pool)
		for range 2 {
			answer, err := once(t, runner.Executor())
			fmt.Println("with the ledger, Valkey down:", answer.Value(), err)
		}
	})
	// Output:
	// data_version alone: 70 <nil>
	// data_version alone: 40 <nil>
	// with the ledger, Valkey down: 70 <nil>
	// with the ledger, Valkey down: 70 <nil>
}
