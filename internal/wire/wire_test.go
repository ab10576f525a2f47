package wire_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/wire"
)

func TestMain(m *testing.M) { os.Exit(itest.Main(m)) }

// limit bounds what should come at once, so that a fault ends a test.
const limit = 30 * time.Second

// bench is a database with a table t, a way to it past the proxy, and one
// through it.
type bench struct {
	*wire.Proxy
	t      *testing.T
	dsn    string // through the proxy
	direct *pgx.Conn
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dsn := itest.Database(t)
	proxy, through, err := wire.Through(context.Background(), dsn)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	b := &bench{Proxy: proxy, t: t, dsn: through, direct: connect(t, dsn)}
	_, err = b.direct.Exec(t.Context(), "CREATE TABLE t (id int)")
	require.NoError(t, err)
	return b
}

// connect opens a connection through the proxy.
func (b *bench) connect(configure ...func(*pgx.ConnConfig)) *pgx.Conn {
	b.t.Helper()
	return connect(b.t, b.dsn, configure...)
}

func connect(t *testing.T, dsn string, configure ...func(*pgx.ConnConfig)) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	for _, change := range configure {
		change(config)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_ = conn.Close(ctx)
		<-conn.PgConn().CleanupDone()
	})
	return conn
}

func mode(m pgx.QueryExecMode) func(*pgx.ConnConfig) {
	return func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = m }
}

func app(name string) func(*pgx.ConnConfig) {
	return func(c *pgx.ConnConfig) { c.RuntimeParams["application_name"] = name }
}

// modes are the ways of pgx to run a statement.
func modes() []pgx.QueryExecMode {
	return []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	}
}

// batch sends statements in one pipeline. When a connection is lost in it,
// pgx 5.7 never ends the goroutine that watches the context: there is none for
// a context that can't end.
func batch(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	var b pgx.Batch
	for _, s := range statements {
		b.Queue(s)
	}
	return conn.SendBatch(context.WithoutCancel(ctx), &b).Close()
}

// rows counts the rows of t that others can see.
func (b *bench) rows() int {
	b.t.Helper()
	var n int
	require.NoError(b.t, b.direct.QueryRow(b.t.Context(), "SELECT count(*) FROM t").Scan(&n))
	return n
}

// insert begins a transaction that has inserted a row.
func (b *bench) insert(conn *pgx.Conn) pgx.Tx {
	b.t.Helper()
	tx, err := conn.Begin(b.t.Context())
	require.NoError(b.t, err)
	_, err = tx.Exec(b.t.Context(), "INSERT INTO t VALUES ($1)", 1)
	require.NoError(b.t, err)
	return tx
}

// comes waits for what must come.
func comes[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(limit):
		require.FailNow(t, "it never came")
		panic("unreachable")
	}
}

// pending asserts that nothing has come yet.
func pending[T any](t *testing.T, c <-chan T) {
	t.Helper()
	select {
	case <-c:
		assert.Fail(t, "it has come already")
	default:
	}
}

// async runs f beside the test.
func async(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}
