package purge_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/purge"
)

func TestEnsureSchedule(t *testing.T) {
	t.Parallel()
	b := setup(t, ledgertest.Database(t), nil)
	b.worker(t)
	s := purge.Schedule{ID: b.queue, TaskQueue: b.queue, Interval: time.Hour}
	handle := b.client.ScheduleClient().GetHandle(t.Context(), s.ID)
	t.Cleanup(func() { assert.NoError(t, handle.Delete(context.WithoutCancel(t.Context()))) })
	ensureAtOnce(t, b, s)

	describe := func() *client.ScheduleDescription {
		d, err := handle.Describe(t.Context())
		require.NoError(t, err)
		return d
	}
	is := describe().Schedule
	require.Equal(t, []client.ScheduleIntervalSpec{{Every: time.Hour}}, is.Spec.Intervals)
	require.Equal(t, purge.DefaultJitter, is.Spec.Jitter)
	require.Equal(t, enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, is.Policy.Overlap)
	require.Equal(t, purge.DefaultCatchupWindow, is.Policy.CatchupWindow)
	require.NotEmpty(t, is.Action.(*client.ScheduleWorkflowAction).StaticSummary)

	updated := describe().Info.LastUpdateAt
	require.NoError(t, purge.EnsureSchedule(t.Context(), b.client, s))
	require.Equal(t, updated, describe().Info.LastUpdateAt, "nothing to do")

	require.NoError(t, handle.Pause(t.Context(), client.SchedulePauseOptions{Note: "by hand"}))
	s.Interval, s.Jitter, s.CatchupWindow, s.Params.Lanes = 2*time.Hour, -1, 20*time.Second, 2
	ensureAtOnce(t, b, s)
	is = describe().Schedule
	require.Equal(t, []client.ScheduleIntervalSpec{{Every: 2 * time.Hour}}, is.Spec.Intervals)
	require.Zero(t, is.Spec.Jitter)
	require.Equal(t, 20*time.Second, is.Policy.CatchupWindow)
	require.True(t, is.State.Paused)
	require.Equal(t, "by hand", is.State.Note)
	require.NoError(t, handle.Unpause(t.Context(), client.ScheduleUnpauseOptions{}))

	// A run, and another that resumes where the first has ended.
	var marks [2]purge.Mark
	for i := range marks {
		b.fill(t, 100, 2*time.Hour, false)
		require.NoError(t, handle.Trigger(t.Context(), client.ScheduleTriggerOptions{}))
		var r purge.Result
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			d, err := handle.Describe(t.Context())
			if !assert.NoError(c, err) || !assert.Len(c, d.Info.RecentActions, i+1) {
				return
			}
			x := d.Info.RecentActions[i].StartWorkflowResult
			assert.NoError(c, b.client.GetWorkflow(t.Context(), x.WorkflowID, x.FirstExecutionRunID).Get(t.Context(), &r))
		}, 50*time.Second, 50*time.Millisecond)
		require.True(t, r.Done)
		marks[i] = r.Marks[0]
		require.EventuallyWithT(t, func(c *assert.CollectT) { // the schedule has heard of its end
			d, err := handle.Describe(t.Context())
			if assert.NoError(c, err) {
				assert.Empty(c, d.Info.RunningWorkflows)
			}
		}, 50*time.Second, 50*time.Millisecond)
	}
	require.Zero(t, b.expired(t))
	require.True(t, marks[1].From.After(marks[0].From))
}

// ensureAtOnce is what a fleet of workers does at its start.
func ensureAtOnce(t *testing.T, b *bundle, s purge.Schedule) {
	t.Helper()
	var all sync.WaitGroup
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			assert.NoError(t, purge.EnsureSchedule(t.Context(), b.client, s))
		}()
	}
	all.Wait()
}

func TestScheduleFaultsAreReportedTogether(t *testing.T) {
	t.Parallel()
	err := purge.EnsureSchedule(t.Context(), nil, purge.Schedule{
		Interval: 1, CatchupWindow: 1, Params: purge.Params{Budget: 1, Round: 1, Lanes: 99, Carried: &purge.Carried{}},
	})
	for _, text := range []string{
		"Schedule.TaskQueue is empty", "Schedule.Interval is 1ns", "Schedule.CatchupWindow is 1ns", "Params.Carried is set",
		"Params.Budget is 1ns", "Params.Round is 1ns", "Params.Lanes is 99",
	} {
		require.ErrorContains(t, err, text)
	}
}
