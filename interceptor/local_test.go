package interceptor_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/interceptor"
)

func locally(ctx workflow.Context) workflow.Context {
	return workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{
		StartToCloseTimeout: 20 * time.Second, RetryPolicy: &temporal.RetryPolicy{InitialInterval: time.Millisecond},
	})
}

// TestALocalAndARegularActivityWithOneID in one run are two executions.
func TestALocalAndARegularActivityWithOneID(t *testing.T) {
	t.Parallel()
	b := setup(t, func(_ *bundle, o *client.Options) { o.Interceptors = append(o.Interceptors, &losesFirst{}) })
	ids := make(chan string, 2)
	b.worker(t, func(w worker.Worker) {
		w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
			ids <- activity.GetInfo(ctx).ActivityID
			return does(ctx, "a")
		}, name("does"))
		w.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
			if err := workflow.ExecuteLocalActivity(locally(ctx), "does").Get(ctx, nil); err != nil {
				return err
			}
			o := withDefaults(workflow.ActivityOptions{ActivityID: "1"})
			return workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, o), "does").Get(ctx, nil)
		}, workflow.RegisterOptions{Name: "both"})
	})
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, "both")
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	require.Equal(t, 2, b.effects(t, "a"))
	requireTwice(t, b.outcomes())
	first := <-ids
	require.Equal(t, first, <-ids, "else this shows nothing")
}

// TestLocalActivitiesUnderABusinessKey meet across workflows, and meet the
// regular activity of the same operation.
func TestLocalActivitiesUnderABusinessKey(t *testing.T) {
	t.Parallel()
	b := setup(t, func(_ *bundle, o *client.Options) { o.Interceptors = append(o.Interceptors, &losesFirst{}) })
	b.worker(t, func(w worker.Worker) {
		registerOrders(w)
		w.RegisterWorkflowWithOptions(func(ctx workflow.Context, o order) (did string, err error) {
			ctx = interceptor.WithKey(locally(ctx), o.Number)
			err = workflow.ExecuteLocalActivity(ctx, "place", o).Get(ctx, &did)
			return did, err
		}, workflow.RegisterOptions{Name: "local"})
	})
	local := func(o order) (got string, err error) {
		run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, "local", o)
		require.NoError(t, err)
		err = run.Get(t.Context(), &got)
		return got, err
	}
	o := order{Number: "7", Amount: 5}
	for range 2 {
		got, err := local(o)
		require.NoError(t, err)
		require.Equal(t, "did order 7", got)
	}
	got, err := b.place(t, "7", 0, o)
	require.NoError(t, err)
	require.Equal(t, "did order 7", got)
	_, err = local(order{Number: "7", Amount: 6})
	e := b.appError(t, err)
	require.Equal(t, interceptor.ErrTypeMismatch, e.Type())
	require.True(t, e.NonRetryable())
	require.Equal(t, 1, b.effects(t, "order 7"))
}

// TestAPermanentFailureOfALocalActivityIsReplayed: chain and details.
func TestAPermanentFailureOfALocalActivityIsReplayed(t *testing.T) {
	t.Parallel()
	b := setup(t, losing(1))
	runs := make(chan struct{}, 10)
	b.worker(t, func(w worker.Worker) {
		w.RegisterActivityWithOptions(func(ctx context.Context) error {
			runs <- struct{}{}
			if _, err := does(ctx, "failed"); err != nil {
				return err
			}
			return temporal.NewNonRetryableApplicationError("no such account", "NoAccount", temporal.NewApplicationError("the cause", "Cause"), 7)
		}, name("fails"))
		w.RegisterWorkflowWithOptions(func(ctx workflow.Context) error {
			return workflow.ExecuteLocalActivity(locally(ctx), "fails").Get(ctx, nil)
		}, workflow.RegisterOptions{Name: "local"})
	})
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, "local")
	require.NoError(t, err)
	e := b.appError(t, run.Get(t.Context(), nil))
	require.Equal(t, "NoAccount", e.Type())
	var detail int
	require.NoError(t, e.Details(&detail))
	require.Equal(t, 7, detail)
	require.ErrorContains(t, e.Unwrap(), "the cause")
	require.Len(t, runs, 1)
	require.Zero(t, b.effects(t, "failed"))
	require.Equal(t, []string{"failed_permanent/1"}, b.statuses(t))
}
