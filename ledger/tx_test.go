package ledger_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

// inTx runs a body that has its transaction.
func (b *bundle) inTx(t *testing.T, name string, f func(ctx context.Context, tx pgx.Tx)) (ledger.Result, error) {
	t.Helper()
	return b.execute(t, records(request(name)), func(ctx context.Context) (ledger.Outcome, error) {
		tx, err := ledger.Tx(ctx)
		if err != nil {
			return ledger.Outcome{}, err
		}
		f(ctx, tx)
		return outcome("did " + name), nil
	})
}

func TestTheBodyCannotEndTheTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.inTx(t, "a", func(ctx context.Context, tx pgx.Tx) {
		assert.NoError(t, ledgertest.Write(ctx, tx, "a"))
		assert.ErrorIs(t, tx.Commit(ctx), ledger.ErrTxOwned)
		assert.ErrorIs(t, tx.Rollback(ctx), ledger.ErrTxOwned)
		for _, sql := range []string{"commit", "/* */ END", "rollback", "abort", "prepare transaction 'x'", "select 1; commit"} {
			_, err := tx.Exec(ctx, sql)
			assert.ErrorIs(t, err, ledger.ErrTxOwned, sql)
			rows, err := tx.Query(ctx, sql)
			assert.ErrorIs(t, err, ledger.ErrTxOwned, sql)
			assert.ErrorIs(t, rows.Err(), ledger.ErrTxOwned, sql)
			rows.Close()
			assert.ErrorIs(t, tx.QueryRow(ctx, sql).Scan(), ledger.ErrTxOwned, sql)
			_, err = tx.Prepare(ctx, "x", sql)
			assert.ErrorIs(t, err, ledger.ErrTxOwned, sql)
			batch := &pgx.Batch{}
			batch.Queue("select 1")
			batch.Queue(sql)
			assert.ErrorIs(t, tx.SendBatch(ctx, batch).Close(), ledger.ErrTxOwned, sql)
		}
	})
	require.NoError(t, err)
	require.Equal(t, 1, b.effects(t, "a"))
}

// TestABatchHandsOutNoTransactionToEnd: since pgx 5.13 a batch may.
func TestABatchHandsOutNoTransactionToEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.inTx(t, "a", func(ctx context.Context, tx pgx.Tx) {
		batch := &pgx.Batch{}
		batch.Queue("begin")
		results := tx.SendBatch(ctx, batch)
		assert.NoError(t, results.Close())
		handed, ok := results.(interface{ Tx() pgx.Tx })
		assert.True(t, ok)
		assert.ErrorIs(t, handed.Tx().Commit(ctx), ledger.ErrTxOwned)
		assert.NoError(t, ledgertest.Write(ctx, tx, "a"))
	})
	require.NoError(t, err)
	require.Equal(t, 1, b.effects(t, "a"))
}

func TestSavepointsCopyAndLargeObjects(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.inTx(t, "a", func(ctx context.Context, tx pgx.Tx) {
		assert.NoError(t, pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return ledgertest.Write(ctx, tx, "kept") }))
		assert.ErrorIs(t, pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			return errors.Join(ledgertest.Write(ctx, tx, "undone"), errBody)
		}), errBody)
		nested, err := tx.Begin(ctx)
		assert.NoError(t, err)
		_, err = nested.Exec(ctx, "select 1/0")
		assert.Error(t, err)
		assert.NoError(t, nested.Rollback(ctx))
		assert.ErrorIs(t, nested.Rollback(ctx), pgx.ErrTxClosed)
		_, err = nested.Exec(ctx, "select 1")
		assert.ErrorIs(t, err, pgx.ErrTxClosed)
		outer, err := tx.Begin(ctx)
		assert.NoError(t, err)
		inner, err := outer.Begin(ctx)
		assert.NoError(t, err)
		assert.NoError(t, outer.Commit(ctx))
		assert.ErrorIs(t, inner.Commit(ctx), pgx.ErrTxClosed)
		_, err = tx.Exec(ctx, "savepoint mine; rollback to mine; release savepoint mine")
		assert.NoError(t, err)
		n, err := tx.CopyFrom(ctx, pgx.Identifier{"effects"}, []string{"name"}, pgx.CopyFromRows([][]any{{"copied"}, {"copied"}}))
		assert.NoError(t, err)
		assert.Equal(t, int64(2), n)
		objects := tx.LargeObjects()
		_, err = objects.Create(ctx, 0)
		assert.NoError(t, err)
	})
	require.NoError(t, err)
	require.Equal(t, 1, b.effects(t, "kept"))
	require.Zero(t, b.effects(t, "undone"))
	require.Equal(t, 2, b.effects(t, "copied"))
}

func TestTheTransactionIsDeadAfterTheBody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var kept pgx.Tx
	var within context.Context
	_, err := b.inTx(t, "a", func(ctx context.Context, tx pgx.Tx) { kept, within = tx, ctx })
	require.NoError(t, err)
	const text = "after the body has returned"
	_, err = kept.Exec(t.Context(), "select 1")
	require.ErrorContains(t, err, text)
	_, err = kept.Begin(t.Context())
	require.ErrorContains(t, err, text)
	require.ErrorContains(t, kept.SendBatch(t.Context(), &pgx.Batch{}).Close(), text)
	_, err = kept.CopyFrom(t.Context(), pgx.Identifier{"effects"}, []string{"name"}, pgx.CopyFromRows(nil))
	require.ErrorContains(t, err, text)
	_, err = ledger.Tx(within)
	require.ErrorContains(t, err, text)
}

func TestRowsLeftOpenCommitNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.inTx(t, "a", func(ctx context.Context, tx pgx.Tx) {
		assert.NoError(t, ledgertest.Write(ctx, tx, "a"))
		_, err := tx.Query(ctx, "select generate_series(1, 100000)") //nolint:sqlclosecheck // left open on purpose
		assert.NoError(t, err)
	})
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
	require.ErrorContains(t, err, "still open")
	require.Zero(t, b.effects(t, "a"))
}

func TestTxOutsideOfAnExecution(t *testing.T) {
	t.Parallel()
	_, err := ledger.Tx(t.Context())
	require.ErrorIs(t, err, ledger.ErrNoExecution)
	_, ok := ledger.FromContext(t.Context())
	require.False(t, ok)
	_, err = ledger.Tx(ledger.Refuse(t.Context(), errBody))
	require.ErrorIs(t, err, errBody)
	_, ok = ledger.FromContext(ledger.Refuse(t.Context(), errBody))
	require.False(t, ok)
}
