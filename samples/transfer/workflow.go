package transfer

import (
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
)

// MoneyTransfer is the workflow: it makes one transfer.
func MoneyTransfer(ctx workflow.Context, t Transfer) (Receipt, error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout:    2 * time.Second, // a dead worker is found out after this
		ScheduleToCloseTimeout: 5 * time.Minute,
		RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 100 * time.Millisecond, BackoffCoefficient: 1},
	})
	var receipt Receipt
	err := workflow.ExecuteActivity(ctx, MoveMoney, t).Get(ctx, &receipt)
	return receipt, err
}
