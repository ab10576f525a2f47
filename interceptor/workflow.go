package interceptor

import (
	"fmt"

	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/ledger"
)

// InterceptWorkflow stamps the activities that a workflow schedules.
func (w *workerInterceptor) InterceptWorkflow(_ workflow.Context, next interceptor.WorkflowInboundInterceptor) interceptor.WorkflowInboundInterceptor {
	return &workflowInbound{interceptor.WorkflowInboundInterceptorBase{Next: next}, w}
}

type workflowInbound struct {
	interceptor.WorkflowInboundInterceptorBase
	worker *workerInterceptor
}

func (i *workflowInbound) Init(outbound interceptor.WorkflowOutboundInterceptor) error {
	return i.Next.Init(&workflowOutbound{
		WorkflowOutboundInterceptorBase: interceptor.WorkflowOutboundInterceptorBase{Next: outbound},
		worker:                          i.worker,
	})
}

// workflowOutbound belongs to one run of a workflow.
type workflowOutbound struct {
	interceptor.WorkflowOutboundInterceptorBase
	worker *workerInterceptor
	calls  uint64 // local activities called so far: the same at each replay
}

// ExecuteActivity stamps the header with what this side knows.
func (o *workflowOutbound) ExecuteActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	policy := o.worker.plugin.policy(activityType)
	id, err := identity{mode: Off}, error(nil)
	if policy.Mode != Off {
		id, _, err = policy.identify(activityType, declaredBy(ctx), args)
	}
	if err == nil {
		err = o.stamp(ctx, id)
	} else if declaredBy(ctx).key == "" {
		// A function of the input that fails on this side may know the decoded
		// input on the other, which reports it.
		err = nil
	}
	if err != nil {
		return failed(ctx, activityType, err)
	}
	return o.Next.ExecuteActivity(ctx, activityType, args...)
}

// ExecuteLocalActivity gives each call an identity of its own: a local
// activity's ID and times are the worker's, and change under retries.
func (o *workflowOutbound) ExecuteLocalActivity(ctx workflow.Context, activityType string, args ...any) workflow.Future {
	o.calls++
	policy := o.worker.plugin.policy(activityType)
	if policy.Mode == Off {
		return o.Next.ExecuteLocalActivity(ctx, activityType, args...)
	}
	id, business, err := policy.identify(activityType, declaredBy(ctx), args)
	if err == nil && !business {
		if id.fingerprint, err = policy.fingerprint(args); err == nil {
			info := workflow.GetInfo(ctx)
			id.key = localKey(info.Namespace, o.worker.run(info.WorkflowExecution.RunID), o.calls, activityType, id.fingerprint)
		}
	}
	if err == nil {
		err = o.stamp(ctx, id)
	}
	if err != nil {
		return failed(ctx, activityType, err)
	}
	return o.Next.ExecuteLocalActivity(ctx, activityType, args...)
}

func (o *workflowOutbound) stamp(ctx workflow.Context, id identity) error {
	p, err := newStamp(id).payload()
	if err != nil {
		return err
	}
	interceptor.WorkflowHeader(ctx)[headerField] = p
	return nil
}

func declaredBy(ctx workflow.Context) (d declared) {
	d.key, _ = ctx.Value(declaredKey{}).(string)
	if o, ok := ctx.Value(declaredOwner{}).(ledger.Owner); ok {
		d.owner = &o
	}
	return d
}

// failed is the future of an activity that can't be named.
func failed(ctx workflow.Context, activityType string, err error) workflow.Future {
	f, set := workflow.NewFuture(ctx)
	set.SetError(temporal.NewNonRetryableApplicationError(
		fmt.Sprintf("effectonce: no key for the activity %s: %s", activityType, err), ErrTypeInvalid, nil))
	return f
}
