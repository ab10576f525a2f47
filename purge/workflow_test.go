package purge_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/internal/clock"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
	"github.com/effectonce/effectonce/purge"
)

// sweepInput is what the workflow tells an activity.
type sweepInput struct {
	Range  ledger.PruneRange `json:"range"`
	Size   int               `json:"size"`
	Beside bool              `json:"beside"`
	For    time.Duration     `json:"for"`
}

// environment runs the workflow with activities that say what the test wants.
func environment(sweep func(sweepInput) (ledger.Swept, error)) *testsuite.TestWorkflowEnvironment {
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(quiet{})
	env := suite.NewTestWorkflowEnvironment()
	purge.RegisterWorkflow(env)
	env.RegisterActivityWithOptions(func([]purge.Mark) ([]purge.Mark, error) { return []purge.Mark{{}}, nil }, activity.RegisterOptions{Name: purge.BeginActivity})
	env.RegisterActivityWithOptions(sweep, activity.RegisterOptions{Name: purge.SweepActivity})
	return env
}

// TestSweepsSideBySideWhenBehind: one, two, four; fewer after time-outs.
func TestSweepsSideBySideWhenBehind(t *testing.T) {
	t.Parallel()
	var (
		mu    sync.Mutex
		lanes [7]int
	)
	until := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	env := environment(func(in sweepInput) (ledger.Swept, error) {
		round := in.Size // each says one more
		mu.Lock()
		lanes[round]++
		mu.Unlock()
		s := ledger.Swept{Rows: 1, Rest: in.Range, Size: round + 1}
		if s.Rest.From.IsZero() {
			s.Rest.From, s.Rest.Until = until.Add(-24*time.Hour), until
		}
		s.Rest.From = s.Rest.From.Add(time.Second)
		if round == 4 {
			s.Shrunk = 1
		}
		s.Done = round == 6
		return s, nil
	})
	env.ExecuteWorkflow(purge.WorkflowType, purge.Params{Lanes: 4})
	require.NoError(t, env.GetWorkflowError())
	var r purge.Result
	require.NoError(t, env.GetWorkflowResult(&r))
	require.Equal(t, [7]int{1, 2, 4, 4, 4, 4, 4}, lanes, "stretches that are cut stay apart until they are done")
	require.True(t, r.Done)
	require.Equal(t, 23, r.Rows)
	require.Equal(t, until, r.Marks[0].From)
}

func TestARunEndsWithItsBudget(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	env := environment(func(in sweepInput) (ledger.Swept, error) {
		in.Range.From = began.Add(time.Hour)
		return ledger.Swept{Rows: 5, Rest: in.Range, Size: 10}, nil
	})
	env.SetStartTime(began)
	env.ExecuteWorkflow(purge.WorkflowType, purge.Params{Carried: &purge.Carried{
		Rows: 7, Until: began, Tables: []purge.Table{{Rest: []ledger.PruneRange{{}}, Lanes: 1}},
	}})
	require.NoError(t, env.GetWorkflowError())
	var r purge.Result
	require.NoError(t, env.GetWorkflowResult(&r))
	require.False(t, r.Done)
	require.Equal(t, 12, r.Rows)
	require.Equal(t, began.Add(time.Hour), r.Marks[0].From, "the next run resumes there")
}

func TestARunContinuesAsNew(t *testing.T) {
	t.Parallel()
	env := environment(func(in sweepInput) (ledger.Swept, error) {
		return ledger.Swept{Rows: 5, Rest: in.Range, Size: 10}, nil
	})
	env.ExecuteWorkflow(purge.WorkflowType, purge.Params{Budget: 1000 * time.Hour})
	var again *workflow.ContinueAsNewError
	require.ErrorAs(t, env.GetWorkflowError(), &again)
	require.Equal(t, purge.WorkflowType, again.WorkflowType.Name)
}

func TestAnActivityResumesByItsHeartbeats(t *testing.T) {
	t.Parallel()
	b := setup(t, ledgertest.Database(t), nil)
	b.fill(t, 100, 100*time.Hour, false)
	var suite testsuite.WorkflowTestSuite
	suite.SetLogger(quiet{})
	env := suite.NewTestActivityEnvironment()
	purge.RegisterActivities(env, func() (*ledger.Store, func(), error) { return b.store, func() {}, nil })
	from := clock.Now().Add(-50*time.Hour - 30*time.Minute)
	env.SetHeartbeatDetails(ledger.Swept{Rows: 50, Rest: ledger.PruneRange{From: from}, Size: 7})
	v, err := env.ExecuteActivity(purge.SweepActivity, sweepInput{For: time.Minute})
	require.NoError(t, err)
	var s ledger.Swept
	require.NoError(t, v.Get(&s))
	require.True(t, s.Done)
	require.Equal(t, 100, s.Rows)
	require.Equal(t, 50, b.expired(t), "what is before the place is left to the next pass")
}
