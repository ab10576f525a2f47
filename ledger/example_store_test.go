package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

// A program starts the store after its pool and before its consumers, and stops
// it in the opposite order.
func ExampleStore() {
	itest.Example(func(t testing.TB) {
		ctx, pool := t.Context(), itest.Pool(t, ledgertest.Database(t))

		store, err := ledger.NewStore(ledger.Config{Pool: pool, Tenants: true}) // connects to nothing
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Validate(ctx); err != nil { // schema and rights
			t.Fatal(err)
		}
		if err := store.Start(ctx); err != nil { // the pruner
			t.Fatal(err)
		}

		// The consumers run here, and have stopped when the store is closed.

		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		if err := store.Close(stop); err != nil {
			t.Fatal(err)
		}
		<-store.Done() // all of it has ended: the pool and the logger may go
		fmt.Println("closed")

		op := newOperation(t, ledger.OperationOptions[string, int]{ID: "count"})
		_, err = op.Run(ctx, store, scope(t, ledger.Platform(), "worker"), clientKey(t, "message-1"), "in",
			func(context.Context, pgx.Tx, string) (int, error) { return 1, nil })
		fmt.Println(err)
	})
	// Output:
	// closed
	// ledger: the store is closed
}

// A program with a scheduler of its own prunes when it likes.
func ExampleStore_Prune() {
	itest.Example(func(t testing.TB) {
		pool := itest.Pool(t, ledgertest.Database(t))
		ctx, store := t.Context(), ledgertest.Store(t, pool)
		op := newOperation(t, ledger.OperationOptions[string, int]{ID: "count"})
		for _, message := range []string{"message-1", "message-2", "message-3"} {
			if _, err := op.Run(ctx, store, scope(t, ledger.Platform(), "worker"), clientKey(t, message), "in",
				func(context.Context, pgx.Tx, string) (int, error) { return 1, nil }); err != nil {
				t.Fatal(err)
			}
		}
		const older = "UPDATE platform_idempotency_keys SET expires_at = now() - interval '1 hour' WHERE id IN (SELECT min(id) FROM platform_idempotency_keys)"
		if _, err := pool.Exec(ctx, older); err != nil {
			t.Fatal(err)
		}
		fmt.Println(store.Prune(ctx, 1000))
		fmt.Println(store.Prune(ctx, 1000))
	})
	// Output:
	// 1 <nil>
	// 0 <nil>
}

// A commit whose answer was lost is looked up on the primary, by a connection of
// its own: the pool may name several hosts, and finds the one that takes writes.
func ExampleConfig() {
	itest.Example(func(t testing.TB) {
		pool := itest.Pool(t, ledgertest.Database(t)+"&target_session_attrs=read-write") // host=a,b in production
		store, err := ledger.NewStore(ledger.Config{Pool: pool, FinishTimeout: 5 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close(context.WithoutCancel(t.Context())) }()
		fmt.Println(store.Validate(t.Context()))
		fmt.Println(ledger.NewStore(ledger.Config{PruneBatch: -1, FinishTimeout: time.Millisecond}))
	})
	// Output:
	// <nil>
	// <nil> ledger: new store: Config.Pool is nil: pass the pool of the primary
	// Config.FinishTimeout is 1ms: use at least 100ms, or 0 for 10s
	// Config.PruneBatch is -1: use 1 to 10000 rows, or 0 for 1000
}

// DBTX is what sqlc generates for pgx. The ledger's transaction is one.
type DBTX interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
}

// SQLC stands for sqlc's Queries.
type SQLC struct{ db DBTX }

// AddEntry is a query as sqlc writes it.
func (q *SQLC) AddEntry(ctx context.Context, account string, amount int64) (id int64, err error) {
	err = q.db.QueryRow(ctx, "INSERT INTO entries (account, amount) VALUES ($1, $2) RETURNING id", account, amount).Scan(&id)
	return id, err
}

// What sqlc generates for pgx takes the transaction as it is.
func ExampleOperation_Run_sqlc() {
	itest.Example(func(t testing.TB) {
		store := exampleStore(t, "CREATE TABLE entries (id bigint GENERATED ALWAYS AS IDENTITY, account text, amount bigint)")
		op := newOperation(t, ledger.OperationOptions[int64, int64]{ID: "entries.add"})
		for range 2 {
			answer, err := op.Run(t.Context(), store, scope(t, ledger.Platform(), "worker"), clientKey(t, "message-1"), 100,
				func(ctx context.Context, tx pgx.Tx, amount int64) (int64, error) {
					return (&SQLC{tx}).AddEntry(ctx, "bob", amount)
				})
			fmt.Println("entry", answer.Value(), "replayed:", answer.Replayed(), err)
		}
	})
	// Output:
	// entry 1 replayed: false <nil>
	// entry 1 replayed: true <nil>
}

// A handler can't end the transaction: a savepoint is what Begin makes there.
func ExampleHandler() {
	itest.Example(func(t testing.TB) {
		store := exampleStore(t, "CREATE TABLE entries (account text)")
		op := newOperation(t, ledger.OperationOptions[string, int]{ID: "entries.add"})
		handler := func(ctx context.Context, tx pgx.Tx, account string) (n int, err error) {
			fmt.Println("commit is ours:", tx.Commit(ctx) != nil)
			_ = pgx.BeginFunc(ctx, tx, func(savepoint pgx.Tx) error { // undone alone
				_, err := savepoint.Exec(ctx, "INSERT INTO entries VALUES ($1)", account)
				return errors.Join(err, errors.New("no"))
			})
			err = tx.QueryRow(ctx, "SELECT count(*) FROM entries").Scan(&n)
			return n, err
		}
		answer, err := op.Run(t.Context(), store, scope(t, ledger.Platform(), "worker"), clientKey(t, "message-1"), "bob", handler)
		fmt.Println("entries:", answer.Value(), err)
	})
	// Output:
	// commit is ours: true
	// entries: 0 <nil>
}
