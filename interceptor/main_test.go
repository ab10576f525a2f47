package interceptor_test

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
)

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		os.Exit(victimMain())
	}
	os.Exit(itest.Main(m))
}

// bundle is what a test of the plugin has: a database, a prefix at the gate and
// a task queue of its own, on real servers.
type bundle struct {
	dsn     string
	pool    *pgxpool.Pool
	prefix  string
	queue   string
	options interceptor.Options
	plugin  *interceptor.Plugin
	client  client.Client
	spans   *tracetest.InMemoryExporter
}

type change func(*bundle, *client.Options)

// setup makes a client that has the plugin. The changes see the options first.
func setup(t *testing.T, changes ...change) *bundle {
	t.Helper()
	dsn := ledgertest.Database(t)
	return setupOn(t, dsn, itest.Pool(t, dsn), changes...)
}

func setupOn(t *testing.T, dsn string, pool *pgxpool.Pool, changes ...change) *bundle {
	t.Helper()
	b := &bundle{dsn: dsn, pool: pool, spans: tracetest.NewInMemoryExporter()}
	b.queue = pool.Config().ConnConfig.Database
	b.prefix = b.queue + ":"
	b.options = interceptor.Options{
		Pool: pool,
		Gate: &gate.Config{
			Valkey:  valkey.ClientOption{InitAddress: []string{itest.Valkey(t)}},
			Prefix:  b.prefix,
			Timeout: 5 * time.Second, // a loaded machine is no dead Valkey
		},
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(b.spans)),
	}
	o := client.Options{HostPort: itest.Temporal(t), Logger: quiet{}}
	for _, c := range changes {
		c(b, &o)
	}
	var err error
	b.plugin, err = interceptor.NewPlugin(b.options)
	require.NoError(t, err)
	o.Plugins = append(o.Plugins, b.plugin)
	b.client, err = client.Dial(o)
	require.NoError(t, err)
	t.Cleanup(b.client.Close)
	return b
}

// worker runs a worker until the test ends.
func (b *bundle) worker(t *testing.T, register func(worker.Worker), configure ...func(*worker.Options)) worker.Worker {
	t.Helper()
	o := worker.Options{MaxConcurrentActivityExecutionSize: 100}
	for _, c := range configure {
		c(&o)
	}
	w := worker.New(b.client, b.queue, o)
	register(w)
	require.NoError(t, w.Start())
	var stopped atomic.Bool
	t.Cleanup(func() {
		if stopped.CompareAndSwap(false, true) {
			w.Stop()
		}
	})
	return w
}

// one is a workflow that executes one activity by its name.
func one(ctx workflow.Context, o workflow.ActivityOptions, name string, args []any) (any, error) {
	var result any
	err := workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, o), name, args...).Get(ctx, &result)
	return result, err
}

// call runs the workflow one and returns the activity's result.
func (b *bundle) call(t *testing.T, o workflow.ActivityOptions, name string, args ...any) (any, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
	defer cancel()
	run, err := b.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: b.queue}, one, withDefaults(o), name, args)
	require.NoError(t, err)
	var result any
	err = run.Get(ctx, &result)
	return result, err
}

func withDefaults(o workflow.ActivityOptions) workflow.ActivityOptions {
	if o.StartToCloseTimeout == 0 {
		o.StartToCloseTimeout = 20 * time.Second
	}
	if o.RetryPolicy == nil {
		o.RetryPolicy = &temporal.RetryPolicy{InitialInterval: 20 * time.Millisecond, BackoffCoefficient: 1}
	}
	return o
}

func registerOne(w worker.Worker) { w.RegisterWorkflow(one) }

func name(n string) activity.RegisterOptions { return activity.RegisterOptions{Name: n} }

func (b *bundle) effects(t *testing.T, name string) int {
	t.Helper()
	return ledgertest.Effects(t, b.pool, name)
}

// outcomes lists what the executions' spans say, in the order in which they ended.
func (b *bundle) outcomes() (all []string) {
	for _, s := range b.spans.GetSpans() {
		if s.Name == gate.SpanName {
			all = append(all, attr(s, gate.AttrOutcome))
		}
	}
	return all
}

func attr(s tracetest.SpanStub, key attribute.Key) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return a.Value.Emit()
		}
	}
	return ""
}

// statuses lists the ledger's rows.
func (b *bundle) statuses(t *testing.T) (all []string) {
	t.Helper()
	rows, err := b.pool.Query(context.WithoutCancel(t.Context()), "SELECT status || '/' || attempt FROM platform_idempotency_keys ORDER BY id")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var s string
		require.NoError(t, rows.Scan(&s))
		all = append(all, s)
	}
	return all
}

func (b *bundle) appError(t *testing.T, err error) *temporal.ApplicationError {
	t.Helper()
	var e *temporal.ApplicationError
	require.ErrorAs(t, err, &e)
	return e
}

// quiet discards what the SDK logs.
type quiet struct{}

var _ log.Logger = quiet{}

func (quiet) Debug(string, ...any) {}
func (quiet) Info(string, ...any)  {}
func (quiet) Warn(string, ...any)  {}
func (quiet) Error(string, ...any) {}

func does(ctx context.Context, n string) (string, error) {
	if err := ledgertest.Effect(ctx, n); err != nil {
		return "", err
	}
	return fmt.Sprintf("did %s", n), nil
}
