package payment

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// Pay is the workflow: it charges one order.
func Pay(ctx workflow.Context, o Order) (Receipt, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout:    time.Minute,
		HeartbeatTimeout:       2 * time.Second, // and the lease: a dead worker's key is taken over after it
		ScheduleToCloseTimeout: time.Hour,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond},
	})
	var receipt Receipt
	var payments *Payments
	err := workflow.ExecuteActivity(ctx, payments.Charge, o).Get(ctx, &receipt)
	return receipt, err
}
