package gate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

// typed runs a typed operation with one effect of that name; its result is n.
func typed(t testing.TB, on ledger.Executor, name string, n int) (ledger.Answer[int], error) {
	t.Helper()
	op, err := ledger.NewOperation(ledger.OperationOptions[string, int]{ID: "typed", Wait: -1})
	require.NoError(t, err)
	scope, err := ledger.NewScope(ledger.Platform(), "alice")
	require.NoError(t, err)
	key, err := ledger.ParseClientKey("0190b4f2-7c3e-7a66-9f1d-2f6b7d1c9e55")
	require.NoError(t, err)
	return op.Run(t.Context(), on, scope, key, name, func(ctx context.Context, tx pgx.Tx, name string) (int, error) {
		return n, ledgertest.Write(ctx, tx, name)
	})
}

// TestTypedOperationIsTheSameAtTheRunnerAndAtTheLedger: one path, one row.
func TestTypedOperationIsTheSameAtTheRunnerAndAtTheLedger(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := typed(t, b.runner.Executor(), "a", 1)
	require.NoError(t, err)
	require.False(t, first.Replayed())
	require.Equal(t, "typed", b.attribute(t, gate.AttrOperation).AsString())
	b.settle(t)

	b.quiet(t)
	atGate, err := typed(t, b.runner.Executor(), "a", 2)
	require.NoError(t, err)
	require.True(t, atGate.Replayed())
	require.Equal(t, 1, atGate.Value())
	questions, postgres := b.costs()
	require.Equal(t, 1, questions)
	require.Zero(t, postgres)
	_, err = typed(t, b.runner.Executor(), "another input", 2)
	require.Equal(t, ledger.CodeMismatch, ledger.CodeOf(err))

	atLedger, err := typed(t, b.store, "a", 3)
	require.NoError(t, err)
	require.True(t, atLedger.Replayed())
	require.Equal(t, 1, atLedger.Value())
	require.Equal(t, 1, b.effects(t, "a"))
}

func TestExecutorTellsItsLedgersLimits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, b.store.Config(), b.runner.Executor().Config())
	r, err := gate.NewRunner(gate.RunnerConfig{Ledger: silent{b.store}})
	require.NoError(t, err)
	require.Equal(t, ledger.Config{}, r.Executor().Config())
}

// TestTokenLastsAsLongAsAnExecutionWithoutADeadline: a token that ended sooner
// would let a duplicate in before its time.
func TestTokenLastsAsLongAsAnExecutionWithoutADeadline(t *testing.T) {
	t.Parallel()
	b := setup(t)
	store := ledgertest.Store(t, b.pool, func(c *ledger.Config) {
		c.FinishTimeout, c.Limits.Timeout = 20*time.Second, time.Hour
	})
	runner, err := gate.NewRunner(gate.RunnerConfig{Ledger: store, Gate: b.gate})
	require.NoError(t, err)
	req := business("a")
	req.Lease = 0
	_, err = runner.Execute(t.Context(), req, func(context.Context) (ledger.Outcome, error) {
		token, _, left := b.stands(t, req)
		assert.NotNil(t, token)
		assert.InDelta(t, time.Hour+20*time.Second, left, float64(time.Minute))
		return outcome("a"), nil
	})
	require.NoError(t, err)
}

// silent is a ledger that doesn't tell its limits.
type silent struct{ gate.Ledger }

// TestTypedOperationCanNotBeNested: through the runner as through the ledger.
func TestTypedOperationCanNotBeNested(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := business("outer")
	_, err := b.runner.Execute(t.Context(), req, func(ctx context.Context) (ledger.Outcome, error) {
		op, err := ledger.NewOperation(ledger.OperationOptions[string, int]{ID: "inner"})
		require.NoError(t, err)
		scope, err := ledger.NewScope(ledger.Platform(), "alice")
		require.NoError(t, err)
		key, err := ledger.ParseClientKey("0123456789abcdef")
		require.NoError(t, err)
		_, err = op.Run(ctx, b.runner.Executor(), scope, key, "in", func(context.Context, pgx.Tx, string) (int, error) {
			return 0, errors.New("the handler ran")
		})
		return ledger.Outcome{}, err
	})
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
	require.ErrorContains(t, err, "the context is another execution's")
}

// With Valkey in front, a late duplicate doesn't reach PostgreSQL.
func ExampleRunner_Executor() {
	itest.Example(func(t testing.TB) {
		store := ledgertest.Store(t, itest.Pool(t, ledgertest.Database(t)))
		front, err := gate.New(gate.Config{
			Valkey: valkey.ClientOption{InitAddress: []string{itest.Valkey(t)}},
			Prefix: "example:",
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := front.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = front.Close(context.WithoutCancel(t.Context())) }()
		runner, err := gate.NewRunner(gate.RunnerConfig{Ledger: store, Gate: front})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 3 {
			answer, err := typed(t, runner.Executor(), "a", n)
			fmt.Println(answer.Value(), answer.Replayed(), err)
		}
	})
	// Output:
	// 0 false <nil>
	// 0 true <nil>
	// 0 true <nil>
}
