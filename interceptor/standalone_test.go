package interceptor_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"

	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

func (b *bundle) standalone(t *testing.T, id, activity string, retry time.Duration, args ...any) client.ActivityHandle {
	t.Helper()
	run, err := b.client.ExecuteActivity(t.Context(), client.StartActivityOptions{
		ID: b.queue + id, TaskQueue: b.queue, StartToCloseTimeout: 20 * time.Second,
		RetryPolicy: &temporal.RetryPolicy{InitialInterval: retry, MaximumAttempts: 3},
	}, activity, args...)
	require.NoError(t, err)
	return run
}

// TestStandaloneActivitiesUnderABusinessKey: two of them, of two IDs, are one.
func TestStandaloneActivitiesUnderABusinessKey(t *testing.T) {
	t.Parallel()
	p := interceptor.Policy{
		Key:   interceptor.KeyOf(func(o order) string { return o.Number }),
		Owner: interceptor.TenantOf(func(o order) int64 { return o.Tenant }),
	}
	b := setup(t, losing(1), policies(map[string]interceptor.Policy{"place": p}))
	b.worker(t, registerOrders)
	o := order{Number: "7", Tenant: ledgertest.TenantA, Amount: 5}
	for _, id := range []string{"a", "b"} {
		var got string
		require.NoError(t, b.standalone(t, id, "place", time.Millisecond, o).Get(t.Context(), &got))
		require.Equal(t, "did order 7", got)
	}
	o.Amount = 6
	err := b.standalone(t, "c", "place", time.Millisecond, o).Get(t.Context(), nil)
	require.Equal(t, interceptor.ErrTypeMismatch, b.appError(t, err).Type())
	require.Equal(t, 1, b.effects(t, "order 7"))
}

// TestADeployBetweenTwoAttemptsOfAStandaloneActivity: the client that has the
// plugin stamps it, as a workflow does, and every attempt obeys.
func TestADeployBetweenTwoAttemptsOfAStandaloneActivity(t *testing.T) {
	t.Parallel()
	key := func(text string) func([]any) (string, error) {
		return func([]any) (string, error) { return text, nil }
	}
	for n, c := range map[string]struct{ before, after interceptor.Policy }{
		"to a business key":  {interceptor.Policy{}, interceptor.Policy{Key: key("k")}},
		"to a derived key":   {interceptor.Policy{Key: key("k")}, interceptor.Policy{}},
		"to another key":     {interceptor.Policy{Key: key("k")}, interceptor.Policy{Key: key("l")}},
		"to another owner":   {interceptor.Policy{Key: key("k")}, interceptor.Policy{Key: key("k"), Owner: func([]any) (ledger.Owner, error) { return ledger.Tenant(ledgertest.TenantA), nil }}},
		"to another op":      {interceptor.Policy{Key: key("k")}, interceptor.Policy{Key: key("k"), Operation: "other"}},
		"to another version": {interceptor.Policy{Key: key("k")}, interceptor.Policy{Key: key("k"), Version: 2}},
		"to another request": {interceptor.Policy{Key: key("k")}, interceptor.Policy{Key: key("k"), Fingerprint: func([]any) ([]byte, error) { return []byte("x"), nil }}},
		"to off":             {interceptor.Policy{}, interceptor.Policy{Mode: interceptor.Off}},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			b := setup(t, losing(1), policies(map[string]interceptor.Policy{"does": c.before}))
			later := setupOn(t, b.dsn, b.pool, policies(map[string]interceptor.Policy{"does": c.after}))
			old := worker.New(b.client, b.queue, worker.Options{})
			registerTransfer(old)
			require.NoError(t, old.Start())
			run := b.standalone(t, "", "does", 2*time.Second, "a")
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
