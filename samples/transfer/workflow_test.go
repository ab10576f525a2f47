package transfer_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"

	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/samples/transfer"
)

// environment is Temporal's own for tests, with the plugin and a real database:
// no Temporal server, no Valkey.
func environment(t *testing.T, pool *pgxpool.Pool) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	plugin, err := interceptor.NewPlugin(interceptor.Options{
		Pool:          pool,
		DataConverter: converter.GetDefaultDataConverter(), // there is no client to take it from
	})
	require.NoError(t, err)
	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestWorkflowEnvironment()
	env.SetWorkerOptions(worker.Options{Plugins: []worker.Plugin{plugin}})
	env.RegisterActivity(transfer.MoveMoney)
	return env
}

func TestWorkflowMovesMoney(t *testing.T) {
	t.Parallel()
	pool, _ := accounts(t)
	env := environment(t, pool)
	env.ExecuteWorkflow(transfer.MoneyTransfer, transfer.Transfer{ID: "t-1", From: "alice", To: "bob", Amount: 10})
	require.NoError(t, env.GetWorkflowError())
	var receipt transfer.Receipt
	require.NoError(t, env.GetWorkflowResult(&receipt))
	assert.Equal(t, transfer.Receipt{Entry: 1, Left: 990}, receipt)
	assert.EqualValues(t, 990, balance(t, pool, "alice"))
	assert.EqualValues(t, 1010, balance(t, pool, "bob"))
	assert.Equal(t, 1, entries(t, pool))
}

func TestWhoCannotPayMovesNothing(t *testing.T) {
	t.Parallel()
	pool, _ := accounts(t)
	env := environment(t, pool)
	env.ExecuteWorkflow(transfer.MoneyTransfer, transfer.Transfer{ID: "t-1", From: "alice", To: "bob", Amount: 1001})
	var failure *temporal.ApplicationError
	require.ErrorAs(t, env.GetWorkflowError(), &failure)
	assert.Equal(t, "InsufficientFunds", failure.Type())
	assert.EqualValues(t, 1000, balance(t, pool, "alice"))
	assert.Zero(t, entries(t, pool))
}
