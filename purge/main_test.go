package purge_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
	"github.com/effectonce/effectonce/purge"
)

var update = flag.Bool("update", false, "store the history of a run anew")

func TestMain(m *testing.M) { os.Exit(itest.Main(m)) }

// bundle is what a test of the purge has: a database and a task queue of its own.
type bundle struct {
	pool   *pgxpool.Pool
	store  *ledger.Store
	client client.Client
	queue  string
}

// setup makes a store that reaches the database by link, or directly.
func setup(t *testing.T, dsn string, link *pgxpool.Pool, configure ...func(*ledger.Config)) *bundle {
	t.Helper()
	b := &bundle{pool: itest.Pool(t, dsn)}
	if link == nil {
		link = b.pool
	}
	b.store = ledgertest.Store(t, link, configure...)
	b.queue = b.pool.Config().ConnConfig.Database
	var err error
	b.client, err = client.Dial(client.Options{HostPort: itest.Temporal(t), Logger: quiet{}})
	require.NoError(t, err)
	t.Cleanup(b.client.Close)
	return b
}

// worker runs a worker with the purge until the test ends.
func (b *bundle) worker(t *testing.T) {
	t.Helper()
	w := worker.New(b.client, b.queue, worker.Options{})
	purge.Register(w, b.store)
	purge.Register(w, b.store) // harmless
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
}

// run runs the workflow, whose ID is the queue's name, and returns the ID of its
// first run and what it says.
func (b *bundle) run(t *testing.T, p purge.Params) (string, purge.Result) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second)
	defer cancel()
	run, err := b.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: b.queue, TaskQueue: b.queue}, purge.WorkflowType, p)
	require.NoError(t, err)
	first := run.GetRunID()
	var r purge.Result
	require.NoError(t, run.Get(ctx, &r))
	return first, r
}

// fill puts n finished rows there that expired so long ago, a microsecond
// between two of them.
func (b *bundle) fill(t *testing.T, n int, ago time.Duration, tenants bool) {
	t.Helper()
	table, column, tenant := "platform_idempotency_keys", "", ""
	if tenants {
		table, column, tenant = "idempotency_keys", "tenant_id, ", fmt.Sprintf("%d, ", ledgertest.TenantA)
	}
	b.exec(t, `INSERT INTO `+table+` (`+column+`idempotency_key, request_fingerprint, status, outcome, expires_at)
SELECT `+tenant+`sha256(convert_to(gen_random_uuid()::text, 'UTF8')), sha256('x'), 'completed', '{"e": "test/1", "v": 1}', clock_timestamp() - $1::interval * i / $2
  FROM generate_series(1, $2::integer) AS i`, ago, n)
}

func (b *bundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := b.pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// expired counts the rows that may go.
func (b *bundle) expired(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, b.pool.QueryRow(context.WithoutCancel(t.Context()), `SELECT
(SELECT count(*) FROM platform_idempotency_keys WHERE expires_at < clock_timestamp() - interval '1 minute')
+ (SELECT count(*) FROM idempotency_keys WHERE expires_at < clock_timestamp() - interval '1 minute')`).Scan(&n))
	return n
}

// slow makes each deleted row cost a thousandth of a second.
const slow = `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.001); RETURN OLD; END';
CREATE TRIGGER slow BEFORE DELETE ON platform_idempotency_keys FOR EACH ROW EXECUTE FUNCTION slow()`

// quiet discards what the SDK logs.
type quiet struct{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}
