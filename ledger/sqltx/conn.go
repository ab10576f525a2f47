package sqltx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Open returns tx as a *sql.DB. It is to be closed before the body returns, and
// is dead afterwards like tx itself.
//
// The transaction stays the ledger's to end: COMMIT, ROLLBACK and their like are
// refused. DB.Begin makes a savepoint, so that a library which wraps each write
// in a transaction works; its options must be the zero ones. Like tx it is for
// one statement at a time: while rows are being read, or from another goroutine,
// a statement is answered with [ErrBusy] rather than waiting for itself. Within a
// savepoint, use the *sql.Tx.
func Open(tx pgx.Tx) *sql.DB { return sql.OpenDB(&connector{tx: tx}) }

// ErrBusy is the answer to a second statement while the first is under way.
var ErrBusy = errors.New("sqltx: the transaction is in use: close the rows or end the sql.Tx before, or use that sql.Tx")

// connector gives out the one connection there is.
type connector struct {
	tx   pgx.Tx
	used atomic.Bool
}

func (c *connector) Connect(context.Context) (driver.Conn, error) {
	if !c.used.CompareAndSwap(false, true) {
		return nil, ErrBusy
	}
	return &conn{connector: c, tx: c.tx, types: c.tx.Conn().TypeMap()}, nil
}

func (c *connector) Driver() driver.Driver { return refusing{} }

// refusing is a driver that opens nothing by name.
type refusing struct{}

func (refusing) Open(string) (driver.Conn, error) {
	return nil, errors.New("sqltx: a transaction has no name to open it by: use Open")
}

// conn is the transaction, or the innermost savepoint in it.
type conn struct {
	*connector
	tx    pgx.Tx
	types *pgtype.Map
}

var (
	_ driver.ConnBeginTx       = (*conn)(nil)
	_ driver.ExecerContext     = (*conn)(nil)
	_ driver.QueryerContext    = (*conn)(nil)
	_ driver.NamedValueChecker = (*conn)(nil)
)

// Close ends nothing: the transaction is the ledger's.
func (c *conn) Close() error {
	c.used.Store(false)
	return nil
}

func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

func (c *conn) BeginTx(ctx context.Context, o driver.TxOptions) (driver.Tx, error) {
	if o.ReadOnly || sql.IsolationLevel(o.Isolation) != sql.LevelDefault {
		return nil, errors.New("sqltx: a savepoint has no options of its own: set the isolation where the execution is requested")
	}
	outer := c.tx
	inner, err := outer.Begin(ctx)
	if err != nil {
		return nil, err
	}
	c.tx = inner
	return &savepoint{ctx: context.WithoutCancel(ctx), conn: c, outer: outer}, nil
}

// savepoint is a nested transaction.
type savepoint struct {
	ctx   context.Context //nolint:containedctx // database/sql gives none to Commit and Rollback
	conn  *conn
	outer pgx.Tx
}

func (s *savepoint) Commit() error {
	defer s.end()
	return s.conn.tx.Commit(s.ctx)
}

func (s *savepoint) Rollback() error {
	defer s.end()
	return s.conn.tx.Rollback(s.ctx)
}

func (s *savepoint) end() { s.conn.tx = s.outer }

func (c *conn) ExecContext(ctx context.Context, query string, named []driver.NamedValue) (driver.Result, error) {
	tag, err := c.tx.Exec(ctx, query, values(named)...)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(tag.RowsAffected()), nil
}

func (c *conn) QueryContext(ctx context.Context, query string, named []driver.NamedValue) (driver.Rows, error) {
	r, err := c.tx.Query(ctx, query, append([]any{formats()}, values(named)...)...)
	if err != nil {
		return nil, err
	}
	more := r.Next() // database/sql asks for the columns first, which may come with the first row
	if err := r.Err(); err != nil {
		r.Close()
		return nil, err
	}
	return &rows{rows: r, types: c.types, ahead: true, more: more}, nil
}

// CheckNamedValue leaves the values to pgx, which knows more types.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if v.Name != "" {
		return fmt.Errorf("sqltx: the argument %d is named: use $1, $2, …", v.Ordinal)
	}
	if _, out := v.Value.(sql.Out); out {
		return fmt.Errorf("sqltx: the argument %d is an output: PostgreSQL has none, read the rows", v.Ordinal)
	}
	return nil
}

func values(named []driver.NamedValue) []any {
	args := make([]any, len(named))
	for i, v := range named {
		args[i] = v.Value
	}
	return args
}

// Prepare prepares nothing by itself: pgx does it at the first use, as its mode
// says, so that nothing is left on the connection.
func (c *conn) Prepare(query string) (driver.Stmt, error) { return &statement{c, query}, nil }

type statement struct {
	conn  *conn
	query string
}

var (
	_ driver.StmtExecContext  = (*statement)(nil)
	_ driver.StmtQueryContext = (*statement)(nil)
)

func (*statement) Close() error  { return nil }
func (*statement) NumInput() int { return -1 } // the server counts

func (s *statement) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.ExecContext(ctx, s.query, args)
}

func (s *statement) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, s.query, args)
}

var errNoContext = errors.New("sqltx: only the methods with a context are there")

func (*statement) Exec([]driver.Value) (driver.Result, error) { return nil, errNoContext }
func (*statement) Query([]driver.Value) (driver.Rows, error)  { return nil, errNoContext }
