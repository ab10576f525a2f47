package ledger_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

// single is a bundle whose pool has one connection: one that is leaked, or a
// second one that is wanted, stops everything.
func single(t *testing.T) *bundle {
	t.Helper()
	dsn := ledgertest.Database(t)
	pool := itest.Pool(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 1 })
	return &bundle{dsn: dsn, pool: pool, store: ledgertest.Store(t, pool)}
}

// run runs an operation for alice.
func (b *bundle) run(ctx context.Context, t testing.TB, name string, handler ledger.Handler[order, receipt]) (ledger.Answer[receipt], error) {
	t.Helper()
	return placing(t).Run(ctx, b.store, scope(t, ledger.Platform(), "alice"), clientKey(t, name), order{Item: name}, handler)
}

// works makes sure that nothing was lost and no connection leaked.
func (b *bundle) works(t *testing.T, name string) {
	t.Helper()
	got, err := b.run(t.Context(), t, name, places)
	require.NoError(t, err)
	require.True(t, got.Committed())
	require.Equal(t, 1, b.effects(t, name)) // on the only connection
}

func TestRunWithACancelledContext(t *testing.T) {
	t.Parallel()
	b := single(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err := b.run(ctx, t, "a", unplaced(t))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "the caller has gone before the body")
	require.False(t, got.Committed())
	b.works(t, "a")
}

// TestACallerWhoHasGoneStopsWaiting: and the handler goes on to its end, which
// the same key finds out.
func TestACallerWhoHasGoneStopsWaiting(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]error{"succeeds": nil, "fails": errBody} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := single(t)
			ctx, cancel := context.WithCancel(t.Context())
			proceed, ended := make(chan struct{}), make(chan struct{})
			got, err := b.run(ctx, t, "a", func(ctx context.Context, tx pgx.Tx, o order) (receipt, error) {
				defer close(ended)
				cancel()
				<-proceed
				assert.NoError(t, ctx.Err(), "the handler's own context goes on")
				r, err := places(ctx, tx, o)
				return r, errors.Join(err, end)
			})
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorContains(t, err, "the handler goes on to its end")
			require.False(t, got.Committed())
			close(proceed)
			<-ended
			b.works(t, "a") // once, by a replay or anew
		})
	}
}

func TestACallerWhoGoesBeforeTheHandlerNeverStartsIt(t *testing.T) {
	t.Parallel()
	b := single(t)
	held, err := b.pool.Acquire(t.Context()) // the only connection
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	_, err = b.run(ctx, t, "a", unplaced(t))
	require.ErrorIs(t, err, context.Canceled)
	held.Release()
	b.works(t, "a")
}

// TestAHandlerThatPanicsWithoutItsCaller: the program goes on, and the log tells.
func TestAHandlerThatPanicsWithoutItsCaller(t *testing.T) {
	t.Parallel()
	said := &told{said: make(chan string, 1)}
	b := setup(t, func(c *ledger.Config) { c.Logger = slog.New(said) })
	ctx, cancel := context.WithCancel(t.Context())
	proceed := make(chan struct{})
	_, err := b.run(ctx, t, "a", func(context.Context, pgx.Tx, order) (receipt, error) {
		cancel()
		<-proceed
		panic("secret")
	})
	require.ErrorIs(t, err, context.Canceled)
	close(proceed)
	require.Equal(t, "a handler panicked after its caller had gone", <-said.said)
	b.works(t, "a")
}

// told hands on the log's lines.
type told struct {
	slog.Handler
	said chan string
}

func (*told) Enabled(context.Context, slog.Level) bool { return true }

func (h *told) Handle(_ context.Context, r slog.Record) error {
	h.said <- r.Message
	return nil
}

// TestTheStoresClosingEndsAHandlersContext: and waits for its end.
func TestTheStoresClosingEndsAHandlersContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, closed := make(chan struct{}), make(chan error, 1)
	go func() {
		<-entered
		closed <- b.store.Close(t.Context())
	}()
	_, err := b.run(t.Context(), t, "a", func(ctx context.Context, tx pgx.Tx, o order) (receipt, error) {
		if err := ledgertest.Write(ctx, tx, o.Item); err != nil {
			return receipt{}, err
		}
		close(entered)
		<-ctx.Done()
		return receipt{}, context.Cause(ctx)
	})
	require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err))
	require.NoError(t, <-closed)
	require.Zero(t, b.effects(t, "a"))
}

func TestRunOnAClosedStore(t *testing.T) {
	t.Parallel()
	b := single(t)
	require.NoError(t, b.store.Close(t.Context()))
	got, err := b.run(t.Context(), t, "a", unplaced(t))
	require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err))
	require.ErrorContains(t, err, "the store is closed")
	require.False(t, got.Committed())
	require.Zero(t, b.effects(t, "a"))
}

func TestNestedRunIsRefused(t *testing.T) {
	t.Parallel()
	b := single(t)
	var kept context.Context
	_, err := b.run(t.Context(), t, "a", func(ctx context.Context, tx pgx.Tx, o order) (receipt, error) {
		kept = ctx
		require.NoError(t, ledgertest.Write(ctx, tx, o.Item))
		got, err := b.run(ctx, t, "inner", unplaced(t))
		assert.False(t, got.Committed())
		return got.Value(), err
	})
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
	require.ErrorContains(t, err, "a handler has its own transaction, in which it can do this work directly")
	_, err = b.run(kept, t, "later", unplaced(t))
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err), "with a context that was kept")
	b.works(t, "a")
	b.works(t, "inner")
}

// TestKeptTransactionIsDead: even while the connection below serves another.
func TestKeptTransactionIsDead(t *testing.T) {
	t.Parallel()
	b := single(t)
	var kept pgx.Tx
	_, err := b.run(t.Context(), t, "a", func(ctx context.Context, tx pgx.Tx, o order) (receipt, error) {
		kept = tx
		return places(ctx, tx, o)
	})
	require.NoError(t, err)
	_, err = b.run(t.Context(), t, "b", func(ctx context.Context, tx pgx.Tx, o order) (receipt, error) {
		for name, err := range map[string]error{
			"write":   ledgertest.Write(ctx, kept, "kept"),
			"row":     kept.QueryRow(ctx, "SELECT 1").Scan(new(int)),
			"batch":   kept.SendBatch(ctx, &pgx.Batch{QueuedQueries: []*pgx.QueuedQuery{{SQL: "INSERT INTO effects (name) VALUES ('kept')"}}}).Close(),
			"begin":   second(kept.Begin(ctx)),
			"copy":    second(kept.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"name"}, pgx.CopyFromRows([][]any{{"kept"}}))),
			"query":   second(kept.Query(ctx, "SELECT 1")),
			"prepare": second(kept.Prepare(ctx, "p", "SELECT 1")),
		} {
			assert.ErrorContains(t, err, "can't be used after the body has returned", name)
		}
		assert.Error(t, kept.Commit(ctx))
		assert.Error(t, kept.Rollback(ctx))
		return places(ctx, tx, o)
	})
	require.NoError(t, err)
	require.Zero(t, b.effects(t, "kept"))
	b.works(t, "a")
	b.works(t, "b")
}

func second[T any](_ T, err error) error { return err }

func TestHandlerCanNotEndTheTransaction(t *testing.T) {
	t.Parallel()
	b := single(t)
	_, err := b.run(t.Context(), t, "a", func(ctx context.Context, tx pgx.Tx, o order) (receipt, error) {
		require.NoError(t, ledgertest.Write(ctx, tx, o.Item))
		require.ErrorIs(t, tx.Commit(ctx), ledger.ErrTxOwned)
		require.ErrorIs(t, second(tx.Exec(ctx, "/* now */ COMMIT")), ledger.ErrTxOwned)
		return receipt{}, errors.New("roll back")
	})
	require.EqualError(t, err, "roll back")
	require.Zero(t, b.effects(t, "a"))
	b.works(t, "a")

	// What slips through is found out, and never called done.
	_, err = b.run(t.Context(), t, "b", func(ctx context.Context, tx pgx.Tx, _ order) (receipt, error) {
		return receipt{}, second(tx.Conn().Exec(ctx, "COMMIT"))
	})
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
	got, err := b.run(t.Context(), t, "b", unplaced(t))
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
	require.ErrorContains(t, err, "this key never runs again; look at the effect by hand")
	require.False(t, got.Committed())
	b.works(t, "c")
}

func TestPanickingHandlerIsRolledBack(t *testing.T) {
	t.Parallel()
	b := single(t)
	require.PanicsWithValue(t, "oh", func() {
		_, _ = b.run(t.Context(), t, "a", func(ctx context.Context, tx pgx.Tx, o order) (receipt, error) {
			require.NoError(t, ledgertest.Write(ctx, tx, o.Item))
			panic("oh")
		})
	})
	b.works(t, "a")
}
