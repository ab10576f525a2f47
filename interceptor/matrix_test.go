package interceptor_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/ledger"
)

// TestKindsInOtherModes: every kind of TestKinds, and standalone activities, in
// the modes that TestKinds doesn't have. Each first answer is lost.
func TestKindsInOtherModes(t *testing.T) {
	t.Parallel()
	executions := map[string]int{
		"method": 1, "no context": 2, "dynamic": 2, "an ID used again": 2, "session": 1, "local": 2, "child workflow": 1,
		"continue-as-new": 2, "retried workflow": 2, "standalone": 1,
	}
	for mode, c := range map[string]struct {
		policy  interceptor.Policy
		outside bool
		bodies  int // of each execution
		rows    int // of each execution
	}{
		"begun at once": {interceptor.Policy{Begin: ledger.BeginAtOnce}, false, 1, 1},
		"leased":        {interceptor.Policy{Mode: interceptor.Leased}, true, 1, 1},
		"off":           {interceptor.Policy{Mode: interceptor.Off}, true, 2, 0},
	} {
		for kind, n := range executions {
			t.Run(mode+"/"+kind, func(t *testing.T) {
				t.Parallel()
				k := &kinds{outside: c.outside}
				b := setup(t, func(b *bundle, o *client.Options) {
					b.options.Default = c.policy
					o.Interceptors = append(o.Interceptors, &losesFirst{})
				})
				b.worker(t, k.register, func(o *worker.Options) { o.EnableSessionWorker = true })
				got := b.runKind(t, kind)
				did := k.all()
				require.Len(t, did, n*c.bodies)
				require.Equal(t, did[len(did)-1], got[len(got)-1], "the workflow has what the last body returned")
				require.Len(t, b.statuses(t), n*c.rows)
				require.Len(t, b.outcomes(), 2*n*c.rows)
				requireTwice(t, b.outcomes())
				if !c.outside && kind != "no context" {
					require.Equal(t, n, b.effects(t, "told"))
				}
			})
		}
	}
}

// runKind runs the workflow of a kind, or its activity alone.
func (b *bundle) runKind(t *testing.T, kind string) (got []string) {
	t.Helper()
	if kind == "standalone" {
		run, err := b.client.ExecuteActivity(t.Context(), client.StartActivityOptions{
			ID: b.queue, TaskQueue: b.queue, StartToCloseTimeout: 20 * time.Second,
			RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond},
		}, "Tell")
		require.NoError(t, err)
		var one string
		require.NoError(t, run.Get(t.Context(), &one))
		return []string{one}
	}
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
		TaskQueue: b.queue, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 2},
	}, "kinds", kind)
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), &got))
	return got
}

// TestAsynchronousCompletionInOtherModes: without a transaction it is Temporal's
// alone; with one it is refused for good.
func TestAsynchronousCompletionInOtherModes(t *testing.T) {
	t.Parallel()
	for n, c := range map[string]struct {
		policy  interceptor.Policy
		refused bool
	}{
		"leased":        {interceptor.Policy{Mode: interceptor.Leased}, false},
		"off":           {interceptor.Policy{Mode: interceptor.Off}, false},
		"begun at once": {interceptor.Policy{Begin: ledger.BeginAtOnce}, true},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(b *bundle, _ *client.Options) { b.options.Default = c.policy })
			tokens := make(chan []byte, 10)
			b.worker(t, func(w worker.Worker) {
				registerOne(w)
				w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
					tokens <- activity.GetInfo(ctx).TaskToken
					return "", activity.ErrResultPending
				}, name("later"))
			})
			run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, one,
				withDefaults(workflow.ActivityOptions{}), "later", []any{})
			require.NoError(t, err)
			if c.refused {
				e := b.appError(t, run.Get(t.Context(), nil))
				require.Equal(t, interceptor.ErrTypeInvalid, e.Type())
				require.True(t, e.NonRetryable())
				require.Len(t, tokens, 1)
				return
			}
			require.NoError(t, b.client.CompleteActivity(t.Context(), <-tokens, "done later", nil))
			var got string
			require.NoError(t, run.Get(t.Context(), &got))
			require.Equal(t, "done later", got)
		})
	}
}

// TestALeaseIsTakenOver by the attempt that follows a body which has hung; what
// the zombie returns in the end is not recorded.
func TestALeaseIsTakenOver(t *testing.T) {
	t.Parallel()
	b := setup(t, leasing)
	proceed, fences := make(chan struct{}), make(chan ledger.Fence, 10)
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
			fence, _ := interceptor.Fence(ctx)
			fences <- fence
			if fence.Attempt == 1 {
				<-proceed // it hears nothing, and heartbeats no more
				return "the zombie's", nil
			}
			return "the second's", nil
		}, name("outside"))
	})
	got, err := b.call(t, workflow.ActivityOptions{HeartbeatTimeout: time.Second}, "outside")
	require.NoError(t, err)
	require.Equal(t, "the second's", got)
	first, second := <-fences, <-fences
	require.Equal(t, first.RowID, second.RowID)
	require.Equal(t, int32(2), second.Attempt)
	close(proceed)
	require.Eventually(t, func() bool { return slices.Contains(b.outcomes(), "fenced") }, 30*time.Second, 10*time.Millisecond)
	require.Equal(t, []string{"completed/2"}, b.statuses(t))
}

// TestAWaitEndsBeforeTheHeartbeatTimeout: nobody heartbeats for a duplicate that
// waits, so that Temporal must hear of it before it gives the attempt up.
func TestAWaitEndsBeforeTheHeartbeatTimeout(t *testing.T) {
	t.Parallel()
	for n, with := range map[string]change{"at the gate": gated, "at the ledger": gateless} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			r := race(t, interceptor.Policy{Wait: time.Hour}, workflow.ActivityOptions{StartToCloseTimeout: time.Minute}, with)
			second := r.start(t, workflow.ActivityOptions{
				StartToCloseTimeout: time.Minute, HeartbeatTimeout: 4 * time.Second, RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1},
			})
			err := second.Get(t.Context(), nil)
			require.Equal(t, interceptor.ErrTypeInFlight, r.appError(t, err).Type(), "not a heartbeat timeout")
			close(r.proceed)
			require.NoError(t, r.first.Get(t.Context(), nil))
			require.Equal(t, 1, r.effects(t, "a"))
		})
	}
}
