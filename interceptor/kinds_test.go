package interceptor_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdkinterceptor "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/grpc"

	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/internal/ledgertest"
)

// losesFirst loses the first answer of each execution: all are delivered twice.
type losesFirst struct {
	sdkinterceptor.InterceptorBase
	failures bool // as well
}

func (l *losesFirst) InterceptActivity(_ context.Context, next sdkinterceptor.ActivityInboundInterceptor) sdkinterceptor.ActivityInboundInterceptor {
	return &losesFirstInbound{sdkinterceptor.ActivityInboundInterceptorBase{Next: next}, l.failures}
}

type losesFirstInbound struct {
	sdkinterceptor.ActivityInboundInterceptorBase
	failures bool
}

func (l *losesFirstInbound) ExecuteActivity(ctx context.Context, in *sdkinterceptor.ExecuteActivityInput) (any, error) {
	result, err := l.Next.ExecuteActivity(ctx, in)
	if info := activity.GetInfo(ctx); info.Attempt == 1 && (err == nil || l.failures) && info.ActivityType.Name != "internalSessionCreationActivity" && info.ActivityType.Name != "internalSessionCompletionActivity" {
		return nil, errLost
	}
	return result, err
}

// kinds are the ways in which activities are executed, each in a workflow of
// its own, which returns what its activities returned.
type kinds struct {
	outside bool // the effect is none of the ledger's
	mu      sync.Mutex
	did     []string // what the bodies returned, in their order
}

// Tell is a method, and an activity: it has an effect, and returns what nobody
// else does.
func (k *kinds) Tell(ctx context.Context) (string, error) {
	if k.outside {
		return k.tell(nil)
	}
	return k.tell(ledgertest.Effect(ctx, "told"))
}

func (k *kinds) tell(err error) (string, error) {
	if err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	text := rand.Text()
	k.did = append(k.did, text)
	return text, nil
}

func (k *kinds) all() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.did)
}

func (k *kinds) register(w worker.Worker) {
	w.RegisterActivity(k)
	w.RegisterActivityWithOptions(func() (string, error) { return k.tell(nil) }, name("no context"))
	w.RegisterDynamicActivity(func(ctx context.Context, _ converter.EncodedValues) (string, error) {
		return k.Tell(ctx)
	}, activity.DynamicRegisterOptions{})
	w.RegisterWorkflowWithOptions(k.workflow, workflow.RegisterOptions{Name: "kinds"})
}

func quick(ctx workflow.Context) workflow.Context {
	return workflow.WithActivityOptions(ctx, withDefaults(workflow.ActivityOptions{}))
}

// workflow executes activities of one kind and returns their results.
func (k *kinds) workflow(ctx workflow.Context, kind string) (all []string, err error) {
	regular := quick(ctx)
	call := func(ctx workflow.Context, activity string) error {
		var did string
		err := workflow.ExecuteActivity(ctx, activity).Get(ctx, &did)
		all = append(all, did)
		return err
	}
	switch kind {
	case "method":
		return all, call(regular, "Tell")
	case "no context", "dynamic":
		return all, errors.Join(call(regular, kind), call(regular, kind))
	case "an ID used again":
		again := workflow.WithActivityOptions(regular, withDefaults(workflow.ActivityOptions{ActivityID: "mine"}))
		return all, errors.Join(call(again, "Tell"), call(again, "Tell"))
	case "session":
		session, err := workflow.CreateSession(regular, &workflow.SessionOptions{CreationTimeout: time.Minute, ExecutionTimeout: time.Minute})
		if err != nil {
			return nil, err
		}
		defer workflow.CompleteSession(session)
		return all, call(session, "Tell")
	case "local":
		local := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
			StartToCloseTimeout: 20 * time.Second, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond},
		})
		for range 2 {
			var did string
			if err := workflow.ExecuteLocalActivity(local, k.Tell).Get(ctx, &did); err != nil {
				return nil, err
			}
			all = append(all, did)
		}
		return all, nil
	case "child workflow":
		err := workflow.ExecuteChildWorkflow(ctx, "kinds", "method").Get(ctx, &all)
		return all, err
	case "continue-as-new", "cron":
		var before []string
		if workflow.HasLastCompletionResult(ctx) {
			if err := workflow.GetLastCompletionResult(ctx, &before); err != nil {
				return nil, err
			}
		}
		if err := call(regular, "Tell"); err != nil {
			return nil, err
		}
		if kind == "continue-as-new" {
			return nil, workflow.NewContinueAsNewError(ctx, "kinds", "after "+kind)
		}
		return append(before, all...), nil
	case "after continue-as-new":
		return all, call(regular, "Tell")
	case "retried workflow":
		if err := call(regular, "Tell"); err != nil {
			return nil, err
		}
		if workflow.GetInfo(ctx).Attempt == 1 {
			return nil, errors.New("the workflow is tried again")
		}
		return all, nil
	default:
		return nil, errors.New("no such kind: " + kind)
	}
}

// TestKinds: each execution is delivered twice and has its effect once, and its
// workflow gets what the body returned.
func TestKinds(t *testing.T) {
	t.Parallel()
	for kind, executions := range map[string]int{
		"method": 1, "no context": 2, "dynamic": 2, "an ID used again": 2, "session": 1, "local": 2, "child workflow": 1,
		"continue-as-new": 2, "retried workflow": 2,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			k := &kinds{}
			b := setup(t, func(_ *bundle, o *client.Options) { o.Interceptors = append(o.Interceptors, &losesFirst{}) })
			b.worker(t, k.register, func(o *worker.Options) { o.EnableSessionWorker = true })
			run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{
				TaskQueue: b.queue, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond, MaximumAttempts: 2},
			}, "kinds", kind)
			require.NoError(t, err)
			var got []string
			require.NoError(t, run.Get(t.Context(), &got))
			did := k.all()
			require.Len(t, did, executions, "bodies")
			require.Equal(t, did[len(did)-len(got):], got)
			if kind != "no context" {
				require.Equal(t, executions, b.effects(t, "told"))
			}
			outcomes := b.outcomes()
			require.Len(t, outcomes, 2*executions)
			requireTwice(t, outcomes)
		})
	}
}

// requireTwice: each execution and then its replay, from wherever.
func requireTwice(t *testing.T, outcomes []string) {
	t.Helper()
	for i, o := range outcomes {
		require.Equal(t, i%2 == 0, o == "executed", "%v", outcomes)
	}
}

// TestCron: each run executes its own.
func TestCron(t *testing.T) {
	t.Parallel()
	k := &kinds{}
	b := setup(t, func(_ *bundle, o *client.Options) { o.Interceptors = append(o.Interceptors, &losesFirst{}) })
	b.worker(t, k.register)
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: b.queue, TaskQueue: b.queue, CronSchedule: "@every 1s"}, "kinds", "cron")
	require.NoError(t, err)
	var ends *historypb.WorkflowExecutionContinuedAsNewEventAttributes
	for range 2 { // runs
		history := b.client.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), true, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
		if ends != nil {
			history = b.client.GetWorkflowHistory(t.Context(), run.GetID(), ends.GetNewExecutionRunId(), true, enumspb.HISTORY_EVENT_FILTER_TYPE_CLOSE_EVENT)
		}
		e, err := history.Next()
		require.NoError(t, err)
		ends = e.GetWorkflowExecutionContinuedAsNewEventAttributes()
		require.NotNil(t, ends)
	}
	require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), ""))
	require.Error(t, run.Get(t.Context(), nil))
	var got []string
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(ends.GetLastCompletionResult(), &got))
	require.Equal(t, k.all()[:2], got)
	requireTwice(t, b.outcomes()[:4])
}

// TestStandaloneActivity: it has a run ID of its own, new each time its ID is
// used again.
func TestStandaloneActivity(t *testing.T) {
	t.Parallel()
	k := &kinds{}
	b := setup(t, func(_ *bundle, o *client.Options) { o.Interceptors = append(o.Interceptors, &losesFirst{}) })
	b.worker(t, k.register)
	for n := range 2 {
		run, err := b.client.ExecuteActivity(t.Context(), client.StartActivityOptions{
			ID: b.queue, TaskQueue: b.queue, StartToCloseTimeout: 20 * time.Second,
			RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond},
		}, "Tell")
		require.NoError(t, err)
		var got string
		require.NoError(t, run.Get(t.Context(), &got))
		require.Equal(t, k.all()[n], got)
		require.Equal(t, n+1, b.effects(t, "told"))
	}
}

// TestEagerExecution: the activity comes with the answer to the workflow's task.
func TestEagerExecution(t *testing.T) {
	t.Parallel()
	k := &kinds{}
	var eager atomic.Int32
	b := setup(t, func(_ *bundle, o *client.Options) {
		o.Interceptors = append(o.Interceptors, &losesFirst{})
		o.ConnectionOptions.DialOptions = append(o.ConnectionOptions.DialOptions, grpc.WithUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := invoker(ctx, method, req, reply, cc, opts...)
				if r, ok := reply.(*workflowservice.RespondWorkflowTaskCompletedResponse); ok && len(r.GetActivityTasks()) > 0 {
					eager.Add(1)
				}
				return err
			}))
	})
	b.worker(t, k.register)
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, "kinds", "method")
	require.NoError(t, err)
	var got []string
	require.NoError(t, run.Get(t.Context(), &got))
	require.Equal(t, k.all(), got)
	require.Equal(t, 1, b.effects(t, "told"))
	require.NotZero(t, eager.Load())
}

// TestReset: by the reset API. A derived key runs again under the new run ID, a
// business key doesn't.
func TestReset(t *testing.T) {
	t.Parallel()
	for n, c := range map[string]struct {
		policy  interceptor.Policy
		effects int
	}{
		"derived":  {interceptor.Policy{}, 2},
		"business": {interceptor.Policy{Key: func([]any) (string, error) { return "k", nil }}, 1},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			k := &kinds{}
			b := setup(t, policies(map[string]interceptor.Policy{"Tell": c.policy}), func(_ *bundle, o *client.Options) {
				o.Interceptors = append(o.Interceptors, &losesFirst{})
			})
			b.worker(t, k.register)
			run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, "kinds", "method")
			require.NoError(t, err)
			require.NoError(t, run.Get(t.Context(), nil))
			reset, err := b.client.ResetWorkflowExecution(t.Context(), &workflowservice.ResetWorkflowExecutionRequest{
				Namespace: "default", WorkflowExecution: &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
				Reason: "test", WorkflowTaskFinishEventId: 4, RequestId: rand.Text(),
			})
			require.NoError(t, err)
			var got []string
			require.NoError(t, b.client.GetWorkflow(t.Context(), run.GetID(), reset.GetRunId()).Get(t.Context(), &got))
			did := k.all()
			require.Len(t, did, c.effects)
			require.Equal(t, did[c.effects-1:], got)
			require.Equal(t, c.effects, b.effects(t, "told"))
		})
	}
}

// TestAnOperatorsReset puts Temporal's attempt back to 1: the same execution.
func TestAnOperatorsReset(t *testing.T) {
	t.Parallel()
	k := &kinds{}
	b := setup(t, func(_ *bundle, o *client.Options) { o.Interceptors = append(o.Interceptors, losingOnce(newLoses(1))) })
	var attempts atomic.Int32
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivity(k)
	})
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, one,
		withDefaults(workflow.ActivityOptions{RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Hour}}), "Tell", []any{})
	require.NoError(t, err)
	pending := func() enumspb.PendingActivityState {
		d, err := b.client.DescribeWorkflowExecution(t.Context(), run.GetID(), run.GetRunID())
		require.NoError(t, err)
		if len(d.GetPendingActivities()) == 0 {
			return 0
		}
		attempts.Store(d.GetPendingActivities()[0].GetAttempt())
		return d.GetPendingActivities()[0].GetState()
	}
	require.Eventually(t, func() bool {
		return pending() == enumspb.PENDING_ACTIVITY_STATE_SCHEDULED && attempts.Load() == 2
	}, 30*time.Second, 20*time.Millisecond)
	_, err = b.client.WorkflowService().ResetActivity(t.Context(), &workflowservice.ResetActivityRequest{
		Namespace: "default", Execution: &commonpb.WorkflowExecution{WorkflowId: run.GetID(), RunId: run.GetRunID()},
		Activity: &workflowservice.ResetActivityRequest_Type{Type: "Tell"},
	})
	require.NoError(t, err)
	var got string
	require.NoError(t, run.Get(t.Context(), &got))
	require.Equal(t, []string{got}, k.all())
	require.Equal(t, 1, b.effects(t, "told"))
	for _, s := range b.spans.GetSpans() {
		assert.Equal(t, "1", attr(s, "effectonce.delivery"), "Temporal counts from 1 again")
	}
}

func losingOnce(l *loses) *bothSides { return &bothSides{loses: l} }
