package interceptor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/servers"
	"github.com/effectonce/effectonce/ledger"
)

func (b *bundle) refusesAnotherRequest(t *testing.T) {
	t.Helper()
	_, err := b.place(t, "7", 0, order{Number: "7", Amount: 6})
	e := b.appError(t, err)
	require.Equal(t, interceptor.ErrTypeMismatch, e.Type())
	require.True(t, e.NonRetryable())
	require.Equal(t, 1, b.effects(t, "order 7"))
}

// TestAnotherRequestIsRefused: wherever it is found out.
func TestAnotherRequestIsRefused(t *testing.T) {
	t.Parallel()
	first := func(t *testing.T, b *bundle) {
		t.Helper()
		_, err := b.place(t, "7", 0, order{Number: "7", Amount: 5})
		require.NoError(t, err)
	}
	t.Run("on a gate hit", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		b.worker(t, registerOrders)
		first(t, b)
		b.settle(t)
		_, err := b.pool.Exec(t.Context(), "DELETE FROM platform_idempotency_keys") // the gate alone knows
		require.NoError(t, err)
		b.refusesAnotherRequest(t)
	})
	t.Run("on a ledger replay", func(t *testing.T) {
		t.Parallel()
		b := setup(t, func(b *bundle, _ *client.Options) { b.options.Gate = nil })
		b.worker(t, registerOrders)
		first(t, b)
		b.refusesAnotherRequest(t)
	})
	t.Run("when degraded", func(t *testing.T) {
		t.Parallel()
		server := itest.PrivateValkey(t, servers.ValkeyOptions{})
		b := setup(t, func(b *bundle, _ *client.Options) {
			b.options.Gate.Valkey.InitAddress = []string{server.Addr()}
		})
		b.worker(t, registerOrders)
		first(t, b)
		require.NoError(t, server.Kill())
		b.refusesAnotherRequest(t)
	})
	for n, begin := range map[string]ledger.Begin{"begun late": ledger.BeginLate, "begun at once": ledger.BeginAtOnce} {
		t.Run("on a lost race, "+n, func(t *testing.T) {
			t.Parallel()
			b := setup(t, policies(map[string]interceptor.Policy{"place": {Begin: begin, Wait: 20 * time.Second}}), func(b *bundle, _ *client.Options) {
				b.options.Gate = nil
			})
			entered, proceed := make(chan struct{}), make(chan struct{})
			b.worker(t, func(w worker.Worker) {
				w.RegisterWorkflow(keyed)
				w.RegisterActivityWithOptions(func(ctx context.Context, o order) (string, error) {
					did, err := place(ctx, o)
					if err == nil && o.Amount == 5 {
						close(entered)
						<-proceed
					}
					return did, err
				}, name("place"))
			})
			first, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, keyed, "7", int64(0), order{Number: "7", Amount: 5})
			require.NoError(t, err)
			<-entered
			run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, keyed, "7", int64(0), order{Number: "7", Amount: 6})
			require.NoError(t, err)
			b.waits(t, run)
			close(proceed)
			require.Equal(t, interceptor.ErrTypeMismatch, b.appError(t, run.Get(t.Context(), nil)).Type())
			require.NoError(t, first.Get(t.Context(), nil))
			require.Equal(t, 1, b.effects(t, "order 7"))
		})
	}
}

// waits returns when the run's activity has started.
func (b *bundle) waits(t *testing.T, run client.WorkflowRun) {
	t.Helper()
	require.Eventually(t, func() bool {
		d, err := b.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
		require.NoError(t, err)
		return len(d.GetPendingActivities()) == 1 && d.GetPendingActivities()[0].GetLastStartedTime() != nil
	}, 30*time.Second, 20*time.Millisecond)
}

// TestAFingerprintOfOnesOwn: what the user leaves out may differ.
func TestAFingerprintOfOnesOwn(t *testing.T) {
	t.Parallel()
	b := setup(t, policies(map[string]interceptor.Policy{"place": {
		Fingerprint: func(args []any) ([]byte, error) { return []byte(args[0].(order).Number), nil },
	}}))
	b.worker(t, registerOrders)
	for amount := range 2 {
		got, err := b.place(t, "7", 0, order{Number: "7", Amount: amount})
		require.NoError(t, err)
		require.Equal(t, "did order 7", got)
	}
	_, err := b.place(t, "7", 0, order{Number: "8"})
	require.Equal(t, interceptor.ErrTypeMismatch, b.appError(t, err).Type())
}

// TestADerivedKeyNeverMismatchesItsOwnRetry: the worker is deployed again
// between two attempts, with a field more in the activity's input.
func TestADerivedKeyNeverMismatchesItsOwnRetry(t *testing.T) {
	t.Parallel()
	type wider struct {
		order
		Currency string
	}
	b := setup(t, losing(1))
	later := setupOn(t, b.dsn, b.pool)
	old := worker.New(b.client, b.queue, worker.Options{})
	registerOrders(old)
	require.NoError(t, old.Start())
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, one,
		withDefaults(workflow.ActivityOptions{RetryPolicy: &temporal.RetryPolicy{InitialInterval: 2 * time.Second}}), "place", []any{order{Number: "7"}})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(b.outcomes()) > 0 }, 30*time.Second, 10*time.Millisecond)
	old.Stop()
	later.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context, o wider) (string, error) { return place(ctx, o.order) }, name("place"))
	})
	var got string
	require.NoError(t, run.Get(t.Context(), &got))
	require.Equal(t, "did order 7", got)
	require.Equal(t, 1, b.effects(t, "order 7"))
}
