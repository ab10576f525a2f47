package snippets_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
	"github.com/effectonce/effectonce/migrations"
	"github.com/effectonce/effectonce/purge"
)

func TestMain(m *testing.M) { os.Exit(itest.Main(m)) }

// accounts makes a database with two accounts, ledger included.
func accounts(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool := itest.Pool(t, ledgertest.Database(t))
	_, err := pool.Exec(t.Context(), `CREATE TABLE accounts (id text PRIMARY KEY, balance bigint NOT NULL);
INSERT INTO accounts VALUES ('ann', 100), ('bob', 100)`)
	require.NoError(t, err)
	return pool
}

func balance(t *testing.T, pool *pgxpool.Pool, id string) int64 {
	t.Helper()
	var n int64
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT balance FROM accounts WHERE id = $1", id).Scan(&n))
	return n
}

func TestTheReadmesWorkerMovesMoneyOnce(t *testing.T) {
	t.Parallel()
	pool := accounts(t)
	stop, stopped := make(chan any), make(chan error, 1)
	go func() { stopped <- run(pool, itest.Valkey(t), itest.Temporal(t), stop) }()
	defer func() {
		close(stop)
		assert.NoError(t, <-stopped)
	}()

	c, err := client.Dial(client.Options{HostPort: itest.Temporal(t), Logger: quiet{}})
	require.NoError(t, err)
	defer c.Close()
	queue := pool.Config().ConnConfig.Database
	w := worker.New(c, queue, worker.Options{DisableRegistrationAliasing: true})
	w.RegisterWorkflow(Pay)
	require.NoError(t, w.Start())
	defer w.Stop()
	payment, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, Pay, Transfer{From: "ann", To: "bob", Amount: 30})
	require.NoError(t, err)
	var left int64
	require.NoError(t, payment.Get(t.Context(), &left))
	assert.EqualValues(t, 70, left)
	assert.EqualValues(t, 130, balance(t, pool, "bob"))
	var status string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT status FROM platform_idempotency_keys").Scan(&status))
	assert.Equal(t, "completed", status)
}

// charges counts what an outside API was asked for, by key.
type charges struct {
	mu    sync.Mutex
	byKey map[string]int
}

var errLost = errors.New("the answer was lost")

func (c *charges) Charge(_ context.Context, key string, _ int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byKey[key]++
	if len(c.byKey) == 1 && c.byKey[key] == 1 {
		return errLost
	}
	return nil
}

func TestOutsideAPIsGetOneKeyForEveryAttempt(t *testing.T) {
	t.Parallel()
	pool := accounts(t)
	c, err := client.Dial(client.Options{HostPort: itest.Temporal(t), Logger: quiet{}})
	require.NoError(t, err)
	defer c.Close()
	queue := pool.Config().ConnConfig.Database
	w, err := onWorkerOnly(c, queue, interceptor.Options{Pool: pool})
	require.NoError(t, err)
	api := &charges{byKey: map[string]int{}}
	w.RegisterActivity((&Shop{payments: api}).Charge)
	w.RegisterActivity(CloseAccount)
	w.RegisterWorkflow(order)
	require.NoError(t, w.Start())
	defer w.Stop()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, order)
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	require.Len(t, api.byKey, 1)
	for key, n := range api.byKey {
		assert.Len(t, key, 64)
		assert.Equal(t, 2, n)
	}
	var left int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM accounts").Scan(&left))
	assert.Equal(t, 1, left)
}

// order charges, then closes an account.
func order(ctx workflow.Context) error {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout: 10 * time.Second,
		RetryPolicy:         &temporal.RetryPolicy{InitialInterval: 10 * time.Millisecond},
	})
	if err := workflow.ExecuteActivity(ctx, (&Shop{}).Charge, 5).Get(ctx, nil); err != nil {
		return err
	}
	return workflow.ExecuteActivity(ctx, CloseAccount, "bob").Get(ctx, nil)
}

func TestAMessageDeliveredTwiceMovesMoneyOnce(t *testing.T) {
	t.Parallel()
	pool := accounts(t)
	store := ledgertest.Store(t, pool)
	move, err := newMove()
	require.NoError(t, err)
	key := "0190b4f2-7c3e-7a66-9f1d-2f6b7d1c9e55"
	for range 2 {
		left, err := post(t.Context(), store, move, "ann", key, Transfer{From: "ann", To: "bob", Amount: 30})
		require.NoError(t, err)
		assert.EqualValues(t, 70, left)
	}
	assert.EqualValues(t, 70, balance(t, pool, "ann"))
	_, err = post(t.Context(), store, move, "ann", key, Transfer{From: "ann", To: "bob", Amount: 31})
	assert.Equal(t, ledger.CodeMismatch, ledger.CodeOf(err))
}

func TestMigratingAndGranting(t *testing.T) {
	t.Parallel()
	pool := itest.Pool(t, itest.Database(t))
	require.NoError(t, migrate(t.Context(), pool))
	m, err := migrations.New(pool, migrations.Options{Schema: "effectonce"})
	require.NoError(t, err)
	require.NoError(t, m.Validate(t.Context()))
	require.NoError(t, grants(t.Context(), m, pool, "pg_monitor")) // any role will do
	var text bytes.Buffer
	require.NoError(t, printSQL(&text, pool))
	assert.Contains(t, text.String(), "REFERENCES \"app\".\"tenants\" (id)")
	_, err = interceptor.NewPlugin(options(pool))
	require.NoError(t, err)
}

// snippet: purge
func schedulePurge(ctx context.Context, c client.Client, queue string) error {
	return purge.EnsureSchedule(ctx, c, purge.Schedule{TaskQueue: queue})
}

// end

func TestSchedulingThePurge(t *testing.T) {
	t.Parallel()
	c, err := client.Dial(client.Options{HostPort: itest.Temporal(t), Logger: quiet{}})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, schedulePurge(t.Context(), c, "snippets"))
	require.NoError(t, c.ScheduleClient().GetHandle(t.Context(), purge.DefaultScheduleID).Delete(t.Context()))
}

// quiet discards what the SDK logs.
type quiet struct{}

var _ log.Logger = quiet{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

func TestTheReadmesTestEnvironment(t *testing.T) {
	t.Parallel()
	pool := accounts(t)
	for range 2 { // two tests of one program
		require.Equal(t, 70, int(testMoveMoney(t, pool)))
		_, err := pool.Exec(t.Context(), "UPDATE accounts SET balance = 100")
		require.NoError(t, err)
	}
}
