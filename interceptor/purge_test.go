package interceptor_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/ledger"
	"github.com/effectonce/effectonce/purge"
)

// TestTheWorkerHasThePurge: its activities don't go through the ledger, whatever
// the policies say, and what it deletes has an end.
func TestTheWorkerHasThePurge(t *testing.T) {
	t.Parallel()
	b := setup(t, func(b *bundle, _ *client.Options) {
		b.options.Default = interceptor.Policy{Mode: interceptor.Leased, Keys: interceptor.KeysRequired}
	})
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(does, name("does"))
		store, err := ledger.NewStore(ledger.Config{Pool: b.pool})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, store.Close(context.WithoutCancel(t.Context()))) })
		purge.Register(w, store) // by hand as well: harmless
	})
	_, err := b.pool.Exec(t.Context(), `INSERT INTO platform_idempotency_keys (idempotency_key, request_fingerprint, status, outcome, expires_at)
SELECT sha256(i::text::bytea), sha256('x'), 'completed', '{"e": "test/1", "v": 1}', clock_timestamp() - interval '1 hour' FROM generate_series(1, 100) AS i`)
	require.NoError(t, err)
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, purge.WorkflowType, purge.Params{})
	require.NoError(t, err)
	var r purge.Result
	require.NoError(t, run.Get(t.Context(), &r))
	require.Equal(t, 100, r.Rows)
	require.True(t, r.Done)
	require.Empty(t, b.statuses(t))
	require.Empty(t, b.outcomes())
}

// TestThePurgeGoesWhereWorkflowsRun: a worker that runs none doesn't begin to
// poll for other workers' workflows.
func TestThePurgeGoesWhereWorkflowsRun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.worker(t, func(w worker.Worker) { w.RegisterActivityWithOptions(does, name("does")) },
		func(o *worker.Options) { o.DisableWorkflowWorker = true })
	b.worker(t, func(w worker.Worker) { w.RegisterActivityWithOptions(does, name("does")) })
	d, err := b.client.DescribeTaskQueue(t.Context(), b.queue, enumspb.TASK_QUEUE_TYPE_WORKFLOW)
	require.NoError(t, err)
	require.Empty(t, d.GetPollers())
	b.worker(t, registerOne)
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, purge.WorkflowType, purge.Params{})
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil), "one worker has the workflow, the others have the activities")
}
