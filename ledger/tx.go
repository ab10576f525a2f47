package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/effectonce/effectonce/internal/sqltext"
)

// ErrTxOwned is what the body's transaction answers to whatever would end it.
var ErrTxOwned = errors.New("ledger: the transaction is the ledger's to end: return nil to commit it, or an error to roll it back")

// guarded is the transaction as the body has it, or a savepoint in it: pgx's,
// except that it can't be ended and is dead once the body has returned.
type guarded struct {
	*root
	outer *guarded // what the savepoint is in; nil: this is the transaction
	name  string   // the savepoint's
	done  atomic.Bool
}

// root is what a transaction and its savepoints have in common.
type root struct {
	conn       *pgx.Conn
	savepoints int
	open       func() // closes the newest rows or batch; no more than one can be open
}

func newGuarded(conn *pgx.Conn) *guarded { return &guarded{root: &root{conn: conn}} }

var (
	_ pgx.Tx = (*guarded)(nil)
	_ pgx.Tx = (*savepoint)(nil)
)

// alive answers for a savepoint too that was ended by the end of an outer one.
func (t *guarded) alive() error {
	for ; t != nil; t = t.outer {
		switch {
		case t.done.Load() && t.outer == nil:
			return errEnded
		case t.done.Load():
			return pgx.ErrTxClosed
		}
	}
	return nil
}

func (t *guarded) check(sql string) error {
	if err := t.alive(); err != nil {
		return err
	}
	if words := sqltext.EndsTransaction(sql); words != "" {
		return fmt.Errorf("%s refused: %w", words, ErrTxOwned)
	}
	return nil
}

// Begin makes a savepoint, as pgx does for a nested transaction.
func (t *guarded) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.alive(); err != nil {
		return nil, err
	}
	t.savepoints++
	name := fmt.Sprintf("effectonce_%d", t.savepoints)
	if _, err := t.conn.Exec(ctx, "savepoint "+name); err != nil {
		return nil, err
	}
	return &savepoint{&guarded{root: t.root, outer: t, name: name}}, nil
}

// Commit is refused.
func (t *guarded) Commit(context.Context) error { return ErrTxOwned }

// Rollback is refused.
func (t *guarded) Rollback(context.Context) error { return ErrTxOwned }

func (t *guarded) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.check(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.conn.Exec(ctx, sql, args...)
}

func (t *guarded) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.check(sql); err != nil {
		return failedRows{err: err}, err
	}
	rows, err := t.conn.Query(ctx, sql, args...)
	t.open = rows.Close
	return rows, err
}

func (t *guarded) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.check(sql); err != nil {
		return failedRows{err: err}
	}
	return t.conn.QueryRow(ctx, sql, args...)
}

func (t *guarded) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		if err := t.check(q.SQL); err != nil {
			return failedBatch{err: err}
		}
	}
	if err := t.alive(); err != nil {
		return failedBatch{err: err}
	}
	results := t.conn.SendBatch(ctx, b)
	t.open = func() { _ = results.Close() }
	return guardedBatch{results, t}
}

// guardedBatch keeps the transaction that pgx 5.13's batches hand out guarded.
type guardedBatch struct {
	pgx.BatchResults
	t *guarded
}

func (b guardedBatch) Tx() pgx.Tx { return b.t }

func (t *guarded) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if err := t.alive(); err != nil {
		return 0, err
	}
	return t.conn.CopyFrom(ctx, table, columns, src)
}

func (t *guarded) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.check(sql); err != nil {
		return nil, err
	}
	return t.conn.Prepare(ctx, name, sql)
}

// LargeObjects costs one more round trip: pgx binds large objects to a
// transaction that it began itself, so that it is made to begin one here, with
// a query that does nothing.
func (t *guarded) LargeObjects() pgx.LargeObjects {
	if t.alive() != nil {
		return pgx.LargeObjects{}
	}
	inner, err := t.conn.BeginTx(context.Background(), pgx.TxOptions{BeginQuery: "select"})
	if err != nil {
		return pgx.LargeObjects{}
	}
	return inner.LargeObjects()
}

// Conn is the connection below, which nothing guards: a COMMIT sent through it
// is found out by the outcome's own check, and its key barred for good.
func (t *guarded) Conn() *pgx.Conn { return t.conn }

// savepoint is a nested transaction, which the body may end.
type savepoint struct{ *guarded }

func (s *savepoint) Commit(ctx context.Context) error { return s.finish(ctx, "release savepoint ") }

func (s *savepoint) Rollback(ctx context.Context) error {
	return s.finish(ctx, "rollback to savepoint ")
}

func (s *savepoint) finish(ctx context.Context, verb string) error {
	if err := s.alive(); err != nil {
		return err
	}
	s.done.Store(true)
	_, err := s.conn.Exec(ctx, verb+s.name)
	return err
}

// failedRows are the rows of a statement that wasn't sent. pgx adds methods to
// its interfaces in minor versions: those unknown here come from a nil one.
type failedRows struct {
	pgx.Rows
	err error
}

func (failedRows) Close()                                       {}
func (r failedRows) Err() error                                 { return r.err }
func (failedRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (failedRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (failedRows) Next() bool                                   { return false }
func (r failedRows) Scan(...any) error                          { return r.err }
func (r failedRows) Values() ([]any, error)                     { return nil, r.err }
func (failedRows) RawValues() [][]byte                          { return nil }
func (failedRows) Conn() *pgx.Conn                              { return nil }
func (failedRows) TypeMap() *pgtype.Map                         { return nil } // pgx 5.13

// failedBatch are the results of a batch that wasn't sent.
type failedBatch struct {
	pgx.BatchResults
	err error
}

func (b failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b failedBatch) Query() (pgx.Rows, error)         { return failedRows{err: b.err}, b.err }
func (b failedBatch) QueryRow() pgx.Row                { return failedRows{err: b.err} }
func (b failedBatch) Close() error                     { return b.err }
func (failedBatch) Tx() pgx.Tx                         { return nil } // pgx 5.13
