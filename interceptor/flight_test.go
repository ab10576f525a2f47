package interceptor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/interceptor"
)

// rivals are two workflows with one business key: the first one's body waits.
type rivals struct {
	*bundle
	entered, proceed chan struct{}
	runs             atomic.Int32
	first            client.WorkflowRun
}

func race(t *testing.T, p interceptor.Policy, o workflow.ActivityOptions, changes ...change) *rivals {
	t.Helper()
	p.Key = interceptor.KeyOf(func(s string) string { return s })
	r := &rivals{entered: make(chan struct{}), proceed: make(chan struct{})}
	r.bundle = setup(t, append(changes, policies(map[string]interceptor.Policy{"holds": p}))...)
	r.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context, n string) (string, error) {
			did, err := does(ctx, n)
			if err == nil && r.runs.Add(1) == 1 {
				close(r.entered)
				<-r.proceed
			}
			return did, err
		}, name("holds"))
	})
	r.first = r.start(t, o)
	<-r.entered
	return r
}

func (r *rivals) start(t *testing.T, o workflow.ActivityOptions) client.WorkflowRun {
	t.Helper()
	run, err := r.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: r.queue}, one, withDefaults(o), "holds", []any{"a"})
	require.NoError(t, err)
	return run
}

func gateless(b *bundle, _ *client.Options) { b.options.Gate = nil }

func gated(*bundle, *client.Options) {}

// TestADuplicateWaitsInPlace: without a connection, and no attempt is burnt; it
// ends early with the first one's result.
func TestADuplicateWaitsInPlace(t *testing.T) {
	t.Parallel()
	for n, with := range map[string]change{"at the gate": gated, "at the ledger": gateless} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			r := race(t, interceptor.Policy{Wait: time.Hour}, workflow.ActivityOptions{}, with)
			second := r.start(t, workflow.ActivityOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 1}})
			r.waits(t, second)
			require.Eventually(t, func() bool { return r.pool.Stat().AcquiredConns() == 1 }, 10*time.Second, time.Millisecond, "the first one's alone")
			close(r.proceed)
			for _, run := range []client.WorkflowRun{r.first, second} {
				var got string
				require.NoError(t, run.Get(t.Context(), &got))
				require.Equal(t, "did a", got)
			}
			require.Equal(t, 1, r.effects(t, "a"))
			require.Equal(t, int32(1), r.runs.Load())
			require.Len(t, r.outcomes(), 2)
		})
	}
}

// TestADuplicateAsksForARetryAfterTheLease: benign, and with the lease left as
// the delay.
func TestADuplicateAsksForARetryAfterTheLease(t *testing.T) {
	t.Parallel()
	for n, with := range map[string]change{"at the gate": gated, "at the ledger": gateless} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			r := race(t, interceptor.Policy{Wait: -1}, workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Minute}, with)
			second := r.start(t, workflow.ActivityOptions{RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Hour}})
			pending := func() (p *workflowpb.PendingActivityInfo) {
				d, err := r.client.DescribeWorkflowExecution(t.Context(), second.GetID(), second.GetRunID())
				require.NoError(t, err)
				if len(d.GetPendingActivities()) > 0 {
					p = d.GetPendingActivities()[0]
				}
				return p
			}
			require.Eventually(t, func() bool { return pending().GetLastFailure() != nil }, 30*time.Second, 20*time.Millisecond)
			p := pending()
			failure := p.GetLastFailure().GetApplicationFailureInfo()
			require.Equal(t, interceptor.ErrTypeInFlight, failure.GetType())
			require.Equal(t, enumspb.APPLICATION_ERROR_CATEGORY_BENIGN, failure.GetCategory())
			require.False(t, failure.GetNonRetryable())
			delay := p.GetNextAttemptScheduleTime().AsTime().Sub(p.GetLastAttemptCompleteTime().AsTime())
			if r.options.Gate != nil { // the ledger can't tell how long an open transaction takes
				require.InDelta(t, 30, delay.Seconds(), 1, "the lease left, at most 30 s")
			}
			require.Less(t, delay, 31*time.Second)
			close(r.proceed)
			require.NoError(t, r.first.Get(t.Context(), nil))
			require.NoError(t, r.client.CancelWorkflow(t.Context(), second.GetID(), ""))
			require.Error(t, second.Get(t.Context(), nil))
			require.Equal(t, 1, r.effects(t, "a"))
		})
	}
}

// TestTheRetryDelayNeverPassesTheEnd: a delay that did would fail the activity
// at once.
func TestTheRetryDelayNeverPassesTheEnd(t *testing.T) {
	t.Parallel()
	r := race(t, interceptor.Policy{Wait: -1}, workflow.ActivityOptions{StartToCloseTimeout: time.Minute}, gated)
	second := r.start(t, workflow.ActivityOptions{ScheduleToCloseTimeout: 4 * time.Second, StartToCloseTimeout: 2 * time.Second})
	require.Eventually(t, func() bool {
		d, err := r.client.DescribeWorkflowExecution(t.Context(), second.GetID(), second.GetRunID())
		require.NoError(t, err)
		return len(d.GetPendingActivities()) == 1 && d.GetPendingActivities()[0].GetAttempt() > 1
	}, 30*time.Second, 20*time.Millisecond)
	close(r.proceed)
	var got string
	require.NoError(t, second.Get(t.Context(), &got))
	require.Equal(t, "did a", got)
	require.NoError(t, r.first.Get(t.Context(), nil))
	require.Equal(t, 1, r.effects(t, "a"))
}

// TestAnotherCallWithTheSameLocalID: a workflow's task fails after its local
// activity, and when it is tried again another call comes to the same place.
func TestAnotherCallWithTheSameLocalID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var tries atomic.Int32
	b.worker(t, func(w worker.Worker) {
		w.RegisterWorkflowWithOptions(func(ctx workflow.Context) (did string, err error) {
			ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: 10 * time.Second})
			try := tries.Add(1)
			err = workflow.ExecuteLocalActivity(ctx, does, map[bool]string{true: "a", false: "b"}[try == 1]).Get(ctx, &did)
			if try == 1 {
				panic("the workflow's task fails")
			}
			return did, err
		}, workflow.RegisterOptions{Name: "local"})
	})
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, "local")
	require.NoError(t, err)
	var did string
	require.NoError(t, run.Get(t.Context(), &did))
	require.Equal(t, "did b", did)
	require.Equal(t, 1, b.effects(t, "a"))
	require.Equal(t, 1, b.effects(t, "b"))
	assert.Equal(t, []string{"executed", "executed"}, b.outcomes())
}

// TestTheSameCallAfterAFailedWorkflowTask: the local activity that has committed
// isn't run again.
func TestTheSameCallAfterAFailedWorkflowTask(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var tries atomic.Int32
	b.worker(t, func(w worker.Worker) {
		w.RegisterWorkflowWithOptions(func(ctx workflow.Context) (did string, err error) {
			ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: 10 * time.Second})
			err = workflow.ExecuteLocalActivity(ctx, does, "a").Get(ctx, &did)
			if tries.Add(1) == 1 {
				panic("the workflow's task fails")
			}
			return did, errors.Join(err)
		}, workflow.RegisterOptions{Name: "local"})
	})
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, "local")
	require.NoError(t, err)
	var did string
	require.NoError(t, run.Get(t.Context(), &did))
	require.Equal(t, "did a", did)
	require.Equal(t, 1, b.effects(t, "a"))
}
