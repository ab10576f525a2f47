package interceptor_test

import (
	"context"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/internal/servers"
	"github.com/effectonce/effectonce/ledger"
)

func TestOptionsFaultsAreReportedTogether(t *testing.T) {
	t.Parallel()
	_, err := interceptor.NewPlugin(interceptor.Options{
		MaxResultBytes: -1,
		DrainTimeout:   -1,
		Default:        interceptor.Policy{Mode: 7},
		Policies: map[string]interceptor.Policy{
			"":     {},
			"Move": {Begin: 7, Isolation: "chaos", Retention: 1, Permanent: 9, Keys: 9},
		},
	})
	for _, text := range []string{
		"Options.Pool is nil", "Options.MaxResultBytes is -1", "Options.DrainTimeout", "Options.Default.Mode is 7",
		"an empty name", `Options.Policies["Move"].Begin is 7`, `Options.Policies["Move"].Isolation is "chaos"`, `Options.Policies["Move"].Retention is 1ns`,
		`Options.Policies["Move"].Permanent is 9`, `Options.Policies["Move"].Keys is 9`,
	} {
		require.ErrorContains(t, err, text)
	}
}

// TestStartRefusesWhatCannotWork: each fault is an error at start that names
// what is wrong and what to do, and nothing is left behind (TestMain's goleak).
func TestStartRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	dsn := ledgertest.Database(t)
	empty := itest.Database(t)
	pool := func(dsn string) *pgxpool.Pool { return itest.Pool(t, dsn) }
	with := func(change func(*url.URL)) string {
		u, err := url.Parse(dsn)
		require.NoError(t, err)
		change(u)
		return u.String()
	}
	locked := itest.PrivateValkey(t, servers.ValkeyOptions{Password: "right"})
	for name, c := range map[string]struct {
		options interceptor.Options
		text    []string
	}{
		"unreachable database": {
			interceptor.Options{Pool: pool(with(func(u *url.URL) { u.Host = "127.0.0.1:1" }))},
			[]string{"Config.Pool can't connect", "check the address"},
		},
		"wrong password": {
			interceptor.Options{Pool: pool(with(func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), "wrong-secret") }))},
			[]string{"Config.Pool can't connect", "the password"},
		},
		"no such database": {
			interceptor.Options{Pool: pool(with(func(u *url.URL) { u.Path = "/nowhere" }))},
			[]string{"the database's name"},
		},
		"missing tables": {
			interceptor.Options{Pool: pool(empty)},
			[]string{"platform_idempotency_keys is missing", "run the migrations"},
		},
		"wrong schema": {
			interceptor.Options{Pool: pool(dsn), Schema: "elsewhere"},
			[]string{`is missing in the schema "elsewhere"`, "Config.Schema"},
		},
		"wrong credentials for Valkey": {
			interceptor.Options{Pool: pool(dsn), Gate: &gate.Config{Valkey: valkey.ClientOption{InitAddress: []string{locked.Addr()}, Password: "wrong-secret"}}},
			[]string{"gate: start", "Config.Valkey.Password"},
		},
		"bad gate option": {
			interceptor.Options{Pool: pool(dsn), Gate: &gate.Config{}},
			[]string{"InitAddress is empty"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.options.DataConverter = converter.GetDefaultDataConverter()
			p, err := interceptor.NewPlugin(c.options)
			require.NoError(t, err)
			err = p.Start(t.Context())
			for _, text := range c.text {
				require.ErrorContains(t, err, text)
			}
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestAFailedStartOfTheWorkerLeavesNothing(t *testing.T) {
	t.Parallel()
	empty := itest.Database(t)
	b := setupOn(t, empty, itest.Pool(t, empty))
	w := worker.New(b.client, b.queue, worker.Options{})
	registerOne(w)
	require.ErrorContains(t, w.Start(), "run the migrations")
}

func TestAValkeyThatIsDownStartsDegraded(t *testing.T) {
	t.Parallel()
	server := itest.PrivateValkey(t, servers.ValkeyOptions{})
	require.NoError(t, server.Kill())
	b := setup(t, func(b *bundle, _ *client.Options) {
		b.options.Gate.Valkey.InitAddress = []string{server.Addr()}
		b.options.Gate.Probe = time.Millisecond
	})
	b.worker(t, registerTransfer)
	_, err := b.call(t, workflow.ActivityOptions{}, "does", "a")
	require.NoError(t, err)
	require.NoError(t, server.Restart(t.Context()))
	_, err = b.call(t, workflow.ActivityOptions{}, "does", "b")
	require.NoError(t, err)
	require.Equal(t, []string{"executed", "executed"}, b.outcomes())
}

func TestOnTheWorkerOnlyTheConverterIsRequired(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plain, err := client.Dial(client.Options{HostPort: itest.Temporal(t), Logger: quiet{}})
	require.NoError(t, err)
	t.Cleanup(plain.Close)
	start := func(o interceptor.Options) (worker.Worker, error) {
		p, err := interceptor.NewPlugin(o)
		require.NoError(t, err)
		w := worker.New(plain, b.queue, worker.Options{Plugins: []worker.Plugin{p}})
		registerTransfer(w)
		return w, w.Start()
	}
	_, err = start(b.options)
	require.ErrorContains(t, err, "Options.DataConverter is nil")
	b.options.DataConverter = converter.GetDefaultDataConverter()
	w, err := start(b.options)
	require.NoError(t, err)
	t.Cleanup(w.Stop)
	_, err = b.call(t, workflow.ActivityOptions{}, "does", "a")
	require.NoError(t, err)
	require.Equal(t, []string{"executed"}, b.outcomes())
}

func TestOnClientAndWorkerBothItWorksOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	both := func(o *worker.Options) { o.Plugins = []worker.Plugin{b.plugin} }
	b.worker(t, registerTransfer, both)
	b.worker(t, registerTransfer, both) // one plugin, many workers
	_, err := b.call(t, workflow.ActivityOptions{}, "does", "a")
	require.NoError(t, err)
	require.Equal(t, []string{"executed"}, b.outcomes())
	require.Equal(t, []string{"completed/1"}, b.statuses(t))
}

func TestClientsWithDifferentConvertersAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := client.Dial(client.Options{
		HostPort: itest.Temporal(t), Logger: quiet{}, Plugins: []client.Plugin{b.plugin},
		DataConverter: converter.NewCompositeDataConverter(converter.NewJSONPayloadConverter()),
	})
	require.ErrorContains(t, err, "different converters")
}

func TestReplayerOpensNothing(t *testing.T) {
	t.Parallel()
	p, err := interceptor.NewPlugin(interceptor.Options{Pool: itest.Pool(t, itest.Database(t))}) // no tables: a start would fail
	require.NoError(t, err)
	b := setup(t)
	b.worker(t, registerTransfer)
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, one, withDefaults(workflow.ActivityOptions{}), "does", []any{"a"})
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	replayer, err := worker.NewWorkflowReplayerWithOptions(worker.WorkflowReplayerOptions{Plugins: []worker.Plugin{p}})
	require.NoError(t, err)
	replayer.RegisterWorkflow(one)
	require.NoError(t, replayer.ReplayWorkflowExecution(t.Context(), b.client.WorkflowService(), quiet{}, "default",
		workflow.Execution{ID: run.GetID(), RunID: run.GetRunID()}))
}

// TestAWorkerThatStopsInMidBody: all or nothing, and a body that had succeeded
// is replayed by the next worker.
func TestAWorkerThatStopsInMidBody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entered, proceed := make(chan struct{}), make(chan struct{})
	var runs atomic.Int32
	register := func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
			did, err := does(ctx, "a")
			if runs.Add(1) == 1 {
				close(entered)
				<-proceed
			}
			return did, err
		}, name("slow"))
	}
	w := worker.New(b.client, b.queue, worker.Options{})
	register(w)
	require.NoError(t, w.Start())
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, one,
		withDefaults(workflow.ActivityOptions{StartToCloseTimeout: 2 * time.Second}), "slow", []any{})
	require.NoError(t, err)
	<-entered
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.Stop()
	}()
	close(proceed)
	<-stopped
	require.Equal(t, 1, b.effects(t, "a"), "what outlived the worker was waited for")
	b.worker(t, register)
	var got string
	require.NoError(t, run.Get(t.Context(), &got))
	require.Equal(t, "did a", got)
	require.Equal(t, 1, b.effects(t, "a"))
	require.Equal(t, int32(1), runs.Load())
}

func TestFiftyActivitiesOnAPoolOfOne(t *testing.T) {
	t.Parallel()
	dsn := ledgertest.Database(t)
	b := setupOn(t, dsn, itest.Pool(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 1 }))
	b.worker(t, registerTransfer)
	runs := make([]client.WorkflowRun, 50)
	for i := range runs {
		var err error
		runs[i], err = b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, one,
			withDefaults(workflow.ActivityOptions{StartToCloseTimeout: 40 * time.Second}), "does", []any{"one of fifty"})
		require.NoError(t, err)
	}
	for _, run := range runs {
		require.NoError(t, run.Get(t.Context(), nil))
	}
	require.Equal(t, 50, b.effects(t, "one of fifty"))
}

// TestOnlyCiphertextIsKept: the ledger and the gate hold what Temporal would
// have got, and a replay decodes.
func TestOnlyCiphertextIsKept(t *testing.T) {
	t.Parallel()
	b := setup(t, losing(1), func(_ *bundle, o *client.Options) {
		o.DataConverter = converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), rot{})
	})
	b.worker(t, registerTransfer)
	got, err := b.call(t, workflow.ActivityOptions{}, "does", "secret")
	require.NoError(t, err)
	require.Equal(t, "did secret", got)
	var kept []byte
	require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT decode(outcome->>'d', 'base64') FROM platform_idempotency_keys").Scan(&kept))
	require.NotContains(t, string(kept), "secret")
	require.Contains(t, string(kept), "binary/rotated")
}

// goldenWorkflowKey must never change: a key that moved would run what has run.
const goldenWorkflowKey = "73258a12840707633a239a23c2acbd11b2a0fa3447ab7527fda5baf06d83d3d0"

func TestGoldenKeys(t *testing.T) {
	t.Parallel()
	at := time.Unix(1700000000, 123456789)
	info := activity.Info{Namespace: "default", ActivityID: "5", ScheduledTime: at, WorkflowExecution: workflow.Execution{ID: "w", RunID: "r"}}
	key, err := interceptor.DeriveKey(info)
	require.NoError(t, err)
	require.Equal(t, goldenWorkflowKey, key.String())

	seen := map[ledger.Key]bool{key: true}
	for _, change := range []func(*activity.Info){
		func(i *activity.Info) { i.Namespace = "other" },
		func(i *activity.Info) { i.ActivityID = "6" },
		func(i *activity.Info) { i.ScheduledTime = at.Add(1) },
		func(i *activity.Info) { i.WorkflowExecution.RunID = "r2" },
		func(i *activity.Info) { i.ActivityRunID, i.WorkflowExecution = "r", workflow.Execution{} },
		func(i *activity.Info) { i.Namespace, i.WorkflowExecution.RunID = "defaultr", "x" },
	} {
		other := info
		change(&other)
		k, err := interceptor.DeriveKey(other)
		require.NoError(t, err)
		require.False(t, seen[k])
		seen[k] = true
	}
	same := info
	same.Attempt, same.WorkflowExecution.ID = 7, "renamed"
	k, err := interceptor.DeriveKey(same)
	require.NoError(t, err)
	require.Equal(t, key, k)
	for _, change := range []func(*activity.Info){
		func(i *activity.Info) { i.WorkflowExecution.RunID = "" },
		func(i *activity.Info) { i.ActivityID = "" },
		func(i *activity.Info) { i.ScheduledTime = time.Time{} },
		func(i *activity.Info) { i.IsLocalActivity = true },
	} {
		other := info
		change(&other)
		_, err := interceptor.DeriveKey(other)
		require.Error(t, err)
	}
}
