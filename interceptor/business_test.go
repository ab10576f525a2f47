package interceptor_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

// order is an activity's input.
type order struct {
	Number string
	Tenant int64
	Amount int
}

func (o order) effect() string { return "order " + o.Number }

func place(ctx context.Context, o order) (string, error) { return does(ctx, o.effect()) }

// keyed declares the key and the tenant in the workflow, then places the order.
func keyed(ctx workflow.Context, key string, tenant int64, o order) (string, error) {
	ctx = workflow.WithActivityOptions(ctx, withDefaults(workflow.ActivityOptions{}))
	if key != "" {
		ctx = interceptor.WithKey(ctx, key)
	}
	if tenant != 0 {
		ctx = interceptor.WithTenant(ctx, tenant)
	}
	var got string
	err := workflow.ExecuteActivity(ctx, "place", o).Get(ctx, &got)
	return got, err
}

func registerOrders(w worker.Worker) {
	registerOne(w)
	w.RegisterWorkflow(keyed)
	w.RegisterActivityWithOptions(place, name("place"))
}

func (b *bundle) place(t *testing.T, key string, tenant int64, o order) (string, error) {
	t.Helper()
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, keyed, key, tenant, o)
	require.NoError(t, err)
	var got string
	err = run.Get(t.Context(), &got)
	return got, err
}

func policies(p map[string]interceptor.Policy) change {
	return func(b *bundle, _ *client.Options) {
		b.options.Policies = p
		b.options.Tenants = true
	}
}

func TestBusinessKeyFromTheWorkflow(t *testing.T) {
	t.Parallel()
	b := setup(t, losing(1))
	b.worker(t, registerOrders)
	o := order{Number: "7", Amount: 5}
	for range 2 { // two workflows, one order
		got, err := b.place(t, "order 7 €\x00", 0, o)
		require.NoError(t, err)
		require.Equal(t, "did order 7", got)
	}
	require.Equal(t, 1, b.effects(t, "order 7"))
	_, err := b.place(t, "order 7 €\x00", 0, order{Number: "7", Amount: 6})
	e := b.appError(t, err)
	require.Equal(t, interceptor.ErrTypeMismatch, e.Type())
	require.True(t, e.NonRetryable())
	require.NotContains(t, err.Error(), "order 7 €", "a raw key is in no error")
	require.Equal(t, 1, b.effects(t, "order 7"))
}

func TestBusinessKeyFromTheInput(t *testing.T) {
	t.Parallel()
	p := interceptor.Policy{Key: interceptor.KeyOf(func(o order) string { return o.Number })}
	b := setup(t, policies(map[string]interceptor.Policy{"place": p}))
	b.worker(t, registerOrders)
	for range 2 {
		_, err := b.place(t, "", 0, order{Number: "7"})
		require.NoError(t, err)
		_, err = b.place(t, "", 0, order{Number: "8"})
		require.NoError(t, err)
	}
	require.Equal(t, 1, b.effects(t, "order 7"))
	require.Equal(t, 1, b.effects(t, "order 8"))
}

func TestOperationsKeepKeysApart(t *testing.T) {
	t.Parallel()
	key := interceptor.KeyOf(func(string) string { return "the same" })
	b := setup(t, policies(map[string]interceptor.Policy{
		"a":        {Key: key},
		"b":        {Key: key},
		"c":        {Key: key, Operation: "shared"},
		"c too":    {Key: key, Operation: "shared"},
		"c, later": {Key: key, Operation: "shared", Version: 1},
	}))
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		for _, n := range []string{"a", "b", "c", "c too", "c, later"} {
			w.RegisterActivityWithOptions(does, name(n))
		}
	})
	for _, n := range []string{"a", "b", "c", "c too", "c, later"} {
		_, err := b.call(t, workflow.ActivityOptions{}, n, "x")
		require.NoError(t, err)
	}
	require.Equal(t, 4, b.effects(t, "x"))
}

func TestPhasesOfRequiringKeys(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	b := setup(t, policies(map[string]interceptor.Policy{
		"optional": {Keys: interceptor.KeysOptional},
		"required": {Keys: interceptor.KeysRequired},
		"broken":   {Key: func([]any) (string, error) { return "", errors.New("no such field") }},
		"panics":   {Key: func(args []any) (string, error) { return args[7].(string), nil }},
	}), func(b *bundle, _ *client.Options) {
		b.options.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	})
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		for _, n := range []string{"optional", "required", "broken", "panics"} {
			w.RegisterActivityWithOptions(does, name(n))
		}
	})
	_, err := b.call(t, workflow.ActivityOptions{}, "optional", "x")
	require.NoError(t, err)
	require.Equal(t, 1, b.effects(t, "x"))
	for n, text := range map[string]string{"required": "requires a business key", "broken": "no such field", "panics": "Policy.Key panicked"} {
		_, err := b.call(t, workflow.ActivityOptions{}, n, "y")
		e := b.appError(t, err)
		require.Equal(t, interceptor.ErrTypeInvalid, e.Type())
		require.True(t, e.NonRetryable())
		require.ErrorContains(t, err, text)
		require.ErrorContains(t, err, "activity "+n)
	}
	require.Zero(t, b.effects(t, "y"))
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	counts := map[string]int64{}
	for _, m := range all.ScopeMetrics[0].Metrics {
		if m.Name != "idempotency_request_id_empty_total" {
			continue
		}
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			op, _ := p.Attributes.Value("operation")
			counts[m.Name+" "+op.AsString()] = p.Value
		}
	}
	require.Equal(t, map[string]int64{
		"idempotency_request_id_empty_total optional": 1,
		"idempotency_request_id_empty_total required": 1,
	}, counts)
}

func TestTenants(t *testing.T) {
	t.Parallel()
	b := setup(t, policies(map[string]interceptor.Policy{"owned": {
		Key:   interceptor.KeyOf(func(o order) string { return o.Number }),
		Owner: interceptor.TenantOf(func(o order) int64 { return o.Tenant }),
	}}))
	b.worker(t, func(w worker.Worker) {
		registerOrders(w)
		w.RegisterActivityWithOptions(place, name("owned"))
	})
	o := order{Number: "7"}
	for _, tenant := range []int64{ledgertest.TenantA, ledgertest.TenantB, ledgertest.TenantA} {
		_, err := b.place(t, "7", tenant, o)
		require.NoError(t, err)
	}
	require.Equal(t, 2, b.effects(t, "order 7"), "the same key under two tenants is two effects")
	_, err := b.call(t, workflow.ActivityOptions{}, "owned", order{Number: "9", Tenant: ledgertest.TenantB})
	require.NoError(t, err)
	_, err = b.place(t, "7", 404, o)
	require.Equal(t, interceptor.ErrTypeInvalid, b.appError(t, err).Type())
	require.ErrorContains(t, err, "tenant:404 is not in the tenants table")
	var rows, platform int
	require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM idempotency_keys), (SELECT count(*) FROM platform_idempotency_keys)").Scan(&rows, &platform))
	require.Equal(t, 3, rows)
	require.Zero(t, platform)
}

func TestAPermanentFailureUnderABusinessKeyRunsAgain(t *testing.T) {
	t.Parallel()
	key := interceptor.KeyOf(func(string) string { return "k" })
	b := setup(t, policies(map[string]interceptor.Policy{
		"runs again": {Key: key},
		"replays":    {Key: key, Permanent: interceptor.PermanentReplay},
	}))
	runs := map[string]*atomic.Int32{"runs again": {}, "replays": {}}
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		for n, r := range runs {
			w.RegisterActivityWithOptions(func(context.Context, string) error {
				r.Add(1)
				return temporal.NewNonRetryableApplicationError("no", "No", nil)
			}, name(n))
		}
	})
	for n := range runs {
		for range 2 {
			_, err := b.call(t, workflow.ActivityOptions{}, n, "x")
			require.Equal(t, "No", b.appError(t, err).Type())
		}
	}
	require.Equal(t, int32(2), runs["runs again"].Load())
	require.Equal(t, int32(1), runs["replays"].Load())
}

// TestADeployBetweenTwoAttemptsDoublesNothing: the stamp made at scheduling is
// obeyed by a worker whose policy is another.
func TestADeployBetweenTwoAttemptsDoublesNothing(t *testing.T) {
	t.Parallel()
	key := func(text string) func([]any) (string, error) {
		return func([]any) (string, error) { return text, nil }
	}
	for n, c := range map[string]struct{ before, after interceptor.Policy }{
		"to a business key":   {interceptor.Policy{}, interceptor.Policy{Key: key("k")}},
		"to a derived key":    {interceptor.Policy{Key: key("k")}, interceptor.Policy{}},
		"to another key":      {interceptor.Policy{Key: key("k")}, interceptor.Policy{Key: key("l")}},
		"to another owner":    {interceptor.Policy{Key: key("k")}, interceptor.Policy{Key: key("k"), Owner: func([]any) (ledger.Owner, error) { return ledger.Tenant(ledgertest.TenantA), nil }}},
		"to another op":       {interceptor.Policy{Key: key("k")}, interceptor.Policy{Key: key("k"), Operation: "other"}},
		"to another version":  {interceptor.Policy{Key: key("k")}, interceptor.Policy{Key: key("k"), Version: 2}},
		"to leased":           {interceptor.Policy{}, interceptor.Policy{Mode: interceptor.Leased}},
		"to off":              {interceptor.Policy{}, interceptor.Policy{Mode: interceptor.Off}},
		"to another request":  {interceptor.Policy{Key: key("k")}, interceptor.Policy{Key: key("k"), Fingerprint: func([]any) ([]byte, error) { return []byte("x"), nil }}},
		"to begin at once":    {interceptor.Policy{}, interceptor.Policy{Begin: ledger.BeginAtOnce}},
		"to required, unkept": {interceptor.Policy{Key: key("k")}, interceptor.Policy{Keys: interceptor.KeysRequired, Key: key("")}},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			b := setup(t, losing(1), policies(map[string]interceptor.Policy{"does": c.before}))
			later := setupOn(t, b.dsn, b.pool, policies(map[string]interceptor.Policy{"does": c.after}))
			old := worker.New(b.client, b.queue, worker.Options{})
			registerTransfer(old)
			require.NoError(t, old.Start())
			run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, one,
				withDefaults(workflow.ActivityOptions{RetryPolicy: &temporal.RetryPolicy{InitialInterval: 2 * time.Second}}), "does", []any{"a"})
			require.NoError(t, err)
			require.Eventually(t, func() bool { return len(b.outcomes()) > 0 }, 30*time.Second, 10*time.Millisecond)
			old.Stop()
			later.worker(t, registerTransfer)
			var got string
			require.NoError(t, run.Get(t.Context(), &got))
			require.Equal(t, "did a", got)
			require.Equal(t, 1, b.effects(t, "a"))
		})
	}
}

func TestLocalActivities(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var runs atomic.Int32
	local := func(ctx context.Context, n string) (string, error) {
		did, err := does(ctx, n)
		if err == nil && runs.Add(1) == 1 {
			return did, nil
		}
		return did, err
	}
	b.worker(t, func(w worker.Worker) {
		w.RegisterWorkflowWithOptions(func(ctx workflow.Context) (all []string, err error) {
			ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
				StartToCloseTimeout: 10 * time.Second,
				RetryPolicy:         &temporal.RetryPolicy{InitialInterval: 10 * time.Millisecond},
			})
			for _, n := range []string{"a", "a", "b"} {
				var did string
				if err := workflow.ExecuteLocalActivity(ctx, local, n).Get(ctx, &did); err != nil {
					return nil, err
				}
				all = append(all, did)
			}
			return all, nil
		}, workflow.RegisterOptions{Name: "locals"})
	})
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, "locals")
	require.NoError(t, err)
	var all []string
	require.NoError(t, run.Get(t.Context(), &all))
	require.Equal(t, []string{"did a", "did a", "did b"}, all)
	require.Equal(t, 2, b.effects(t, "a"), "two calls are two executions")
	require.Equal(t, 1, b.effects(t, "b"))
}

// TestALostLocalActivityIsReplayed: its first answer is lost, and the retry,
// whose backoff goes through a timer and a new ID, gets it.
func TestALostLocalActivityIsReplayed(t *testing.T) {
	t.Parallel()
	for n, interval := range map[string]time.Duration{"at once": 10 * time.Millisecond, "through a timer": 3 * time.Second} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			b := setup(t, losing(1))
			b.worker(t, func(w worker.Worker) {
				w.RegisterWorkflowWithOptions(func(ctx workflow.Context) (did string, err error) {
					ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
						StartToCloseTimeout: 10 * time.Second,
						RetryPolicy:         &temporal.RetryPolicy{InitialInterval: interval},
					})
					err = workflow.ExecuteLocalActivity(ctx, does, "a").Get(ctx, &did)
					return did, err
				}, workflow.RegisterOptions{Name: "local"})
			})
			run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue, WorkflowTaskTimeout: time.Second}, "local")
			require.NoError(t, err)
			var did string
			require.NoError(t, run.Get(t.Context(), &did))
			require.Equal(t, "did a", did)
			require.Equal(t, 1, b.effects(t, "a"))
			require.Len(t, b.outcomes(), 2)
		})
	}
}

func TestGoldenBusinessKey(t *testing.T) {
	t.Parallel()
	require.Equal(t, goldenBusinessKey, interceptor.BusinessKey("place", 1, "order 7").String())
	seen := map[ledger.Key]bool{}
	for _, op := range []string{"", "a", "ab", "a\x00b"} {
		for _, version := range []uint32{0, 1, 1 << 31} {
			for _, key := range []string{"", "b", "\x00", strings.Repeat("x", 1<<20)} {
				k := interceptor.BusinessKey(op, version, key)
				require.False(t, seen[k])
				seen[k] = true
			}
		}
	}
}

func FuzzBusinessKeyIsInjective(f *testing.F) {
	f.Add("a", uint32(1), "b", "a", uint32(1), "b")
	f.Add("ab", uint32(0), "c", "a", uint32(0), "bc")
	f.Fuzz(func(t *testing.T, op1 string, v1 uint32, k1, op2 string, v2 uint32, k2 string) {
		same := op1 == op2 && v1 == v2 && k1 == k2
		assert.Equal(t, same, interceptor.BusinessKey(op1, v1, k1) == interceptor.BusinessKey(op2, v2, k2))
	})
}

// goldenBusinessKey must never change, like goldenWorkflowKey.
const goldenBusinessKey = "e5f5bf45f70b18b290439dfa8cd285822b20cab2e45c7cd1150de92b27177fb1"
