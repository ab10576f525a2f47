package purge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/ledger"
	"github.com/effectonce/effectonce/purge"
)

// TestPurgeEmptiesBothTables: by a pool of one connection.
func TestPurgeEmptiesBothTables(t *testing.T) {
	t.Parallel()
	dsn := ledgertest.Database(t)
	b := setup(t, dsn, itest.Pool(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 1 }), func(c *ledger.Config) { c.PruneBatch = 50 })
	b.worker(t)
	b.fill(t, 500, 2*time.Hour, false)
	b.fill(t, 300, 2*time.Hour, true)
	b.fill(t, 10, -time.Hour, false)
	before := b.expired(t)
	_, r := b.run(t, purge.Params{})
	require.Zero(t, b.expired(t))
	require.GreaterOrEqual(t, r.Rows, before)
	require.True(t, r.Done)
	require.Len(t, r.Marks, 2)
	require.True(t, r.Marks[1].Tenants)
	for _, m := range r.Marks {
		require.False(t, m.From.IsZero())
		require.False(t, m.Full.IsZero())
	}
	var kept int
	require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT count(*) FROM platform_idempotency_keys WHERE expires_at > clock_timestamp()").Scan(&kept))
	require.Equal(t, 10, kept)
}

// TestPurgeSurvivesLostConnections: what was committed unheard isn't counted,
// and all is deleted.
func TestPurgeSurvivesLostConnections(t *testing.T) {
	t.Parallel()
	dsn := ledgertest.Database(t)
	proxy, through, err := wire.Through(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	b := setup(t, dsn, itest.Pool(t, through), func(c *ledger.Config) { c.PruneBatch = 50 })
	b.worker(t)
	b.fill(t, 500, 2*time.Hour, false)
	before := b.expired(t)
	batch := wire.Contains("SKIP LOCKED")
	first := proxy.Arm(wire.Rule{Match: batch, Action: wire.CutAfter})
	second := proxy.Arm(wire.Rule{Match: batch, Action: wire.CutBefore})
	_, r := b.run(t, purge.Params{})
	<-first.Fired()
	<-second.Fired()
	require.Zero(t, b.expired(t))
	require.True(t, r.Done)
	require.LessOrEqual(t, r.Rows, 500-50, "one batch was committed unheard")
	require.GreaterOrEqual(t, r.Rows, before-50)
}

const history = "testdata/purge.json"

// TestReplay: a change to the workflow's code must not break runs that began
// before it. The stored run has several rounds, two lanes and a continuation.
func TestReplay(t *testing.T) {
	t.Parallel()
	if *update {
		record(t)
	}
	r := worker.NewWorkflowReplayer()
	r.RegisterWorkflowWithOptions(purge.Workflow, workflow.RegisterOptions{Name: purge.WorkflowType})
	require.NoError(t, r.ReplayWorkflowHistoryFromJSONFile(quiet{}, history))

	text, err := os.ReadFile(history)
	require.NoError(t, err)
	require.True(t, bytes.Contains(text, []byte("EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW")), "the stored run is long enough")
}

// record stores the history of a run that doesn't keep up.
func record(t *testing.T) {
	t.Helper()
	b := setup(t, ledgertest.Database(t), nil, func(c *ledger.Config) { c.PruneBatch = 10 })
	b.worker(t)
	b.exec(t, slow)
	b.fill(t, 20_000, 100*time.Hour, false)
	b.fill(t, 100, 100*time.Hour, true)
	first, _ := b.run(t, purge.Params{Round: 100 * time.Millisecond, Lanes: 2})
	events := b.client.GetWorkflowHistory(t.Context(), b.queue, first, false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	h := &historypb.History{}
	for events.HasNext() {
		e, err := events.Next()
		require.NoError(t, err)
		h.Events = append(h.Events, e)
	}
	text, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(h)
	require.NoError(t, err)
	require.True(t, json.Valid(text))
	require.NoError(t, os.WriteFile(history, append(text, '\n'), 0o644))
}

// TestPurgeWaitsWhileTheDatabaseIsInTrouble: it is tried again, and the run
// comes to its end.
func TestPurgeWaitsWhileTheDatabaseIsInTrouble(t *testing.T) {
	t.Parallel()
	b := setup(t, ledgertest.Database(t), nil)
	b.worker(t)
	b.fill(t, 100, 2*time.Hour, false)
	b.exec(t, "ALTER TABLE platform_idempotency_payloads RENAME TO elsewhere")
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, purge.WorkflowType, purge.Params{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		d, err := b.client.DescribeWorkflowExecution(context.WithoutCancel(t.Context()), run.GetID(), "")
		return err == nil && len(d.PendingActivities) == 1 && d.PendingActivities[0].Attempt > 1
	}, 50*time.Second, 10*time.Millisecond)
	b.exec(t, "ALTER TABLE elsewhere RENAME TO platform_idempotency_payloads")
	var r purge.Result
	require.NoError(t, run.Get(t.Context(), &r))
	require.True(t, r.Done)
	require.Zero(t, b.expired(t))
}
