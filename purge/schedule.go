package purge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
)

// Defaults of [Schedule].
const (
	DefaultScheduleID    = WorkflowType
	DefaultInterval      = time.Minute
	DefaultJitter        = 10 * time.Second
	DefaultCatchupWindow = time.Minute
)

const summary = "Deletes the ledger's expired rows"

// Schedule says when the workflow runs. Only TaskQueue is required; the zero
// value of each other field is its default.
type Schedule struct {
	// ID of the schedule, one for each ledger. Default "maintenance.purge".
	ID string
	// TaskQueue of the workers that have the workflow. Required.
	TaskQueue string
	// Interval between two runs. Default 1 min, at least 1 s. A run that is still
	// at work when the next one is due goes on, and that one is skipped.
	Interval time.Duration
	// Jitter delays each run by up to that long. Default 10 s; negative: none.
	Jitter time.Duration
	// CatchupWindow is how late a missed run may still start after the server
	// was away. Default 1 min, at least 10 s, which is the server's least. The next
	// run deletes all that a missed one would have.
	CatchupWindow time.Duration
	// Params of each run.
	Params Params
}

func (s Schedule) withDefaults() Schedule {
	if s.ID == "" {
		s.ID = DefaultScheduleID
	}
	if s.Interval == 0 {
		s.Interval = DefaultInterval
	}
	if s.Jitter == 0 {
		s.Jitter = DefaultJitter
	}
	s.Jitter = max(s.Jitter, 0)
	if s.CatchupWindow == 0 {
		s.CatchupWindow = DefaultCatchupWindow
	}
	return s
}

func (s Schedule) validate() error {
	var faults []error
	if s.TaskQueue == "" {
		faults = append(faults, errors.New("Schedule.TaskQueue is empty: name the queue of the workers that have the purge"))
	}
	if s.Interval < time.Second {
		faults = append(faults, fmt.Errorf("Schedule.Interval is %s: use at least 1s, or 0 for %s", s.Interval, DefaultInterval))
	}
	if s.CatchupWindow < 10*time.Second {
		faults = append(faults, fmt.Errorf("Schedule.CatchupWindow is %s: use at least 10s, or 0 for %s", s.CatchupWindow, DefaultCatchupWindow))
	}
	if s.Params.Carried != nil {
		faults = append(faults, errors.New("Schedule.Params.Carried is set: leave it out"))
	}
	return errors.Join(append(faults, s.Params.withDefaults().validate())...)
}

// EnsureSchedule makes the schedule, or brings one that is there up to date. Any
// number of processes may call it at once, each at its start. A schedule that
// somebody has paused stays paused, and one that is as it should be isn't touched.
func EnsureSchedule(ctx context.Context, c client.Client, s Schedule) error {
	s = s.withDefaults()
	if err := s.validate(); err != nil {
		return fmt.Errorf("purge: ensure schedule: %w", err)
	}
	_, err := c.ScheduleClient().Create(ctx, client.ScheduleOptions{
		ID: s.ID, Spec: s.spec(), Action: s.action(),
		Overlap: enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, CatchupWindow: s.CatchupWindow,
	})
	if errors.Is(err, temporal.ErrScheduleAlreadyRunning) {
		err = c.ScheduleClient().GetHandle(ctx, s.ID).Update(ctx, client.ScheduleUpdateOptions{DoUpdate: s.update})
	}
	if err != nil {
		return fmt.Errorf("purge: ensure schedule: %w", err)
	}
	return nil
}

func (s Schedule) spec() client.ScheduleSpec {
	return client.ScheduleSpec{Intervals: []client.ScheduleIntervalSpec{{Every: s.Interval}}, Jitter: s.Jitter}
}

func (s Schedule) action() *client.ScheduleWorkflowAction {
	return &client.ScheduleWorkflowAction{
		ID: s.ID, Workflow: WorkflowType, Args: []any{s.Params}, TaskQueue: s.TaskQueue, StaticSummary: summary,
		// A run that is stuck must not keep all others from their turn.
		WorkflowExecutionTimeout: 2*s.Params.withDefaults().Budget + time.Hour,
	}
}

// update changes what this package says, and leaves the rest as it is.
func (s Schedule) update(in client.ScheduleUpdateInput) (*client.ScheduleUpdate, error) {
	is := in.Description.Schedule
	if s.same(is) {
		return nil, temporal.ErrSkipScheduleUpdate
	}
	spec := s.spec()
	is.Spec, is.Action = &spec, s.action()
	if is.Policy == nil {
		is.Policy = &client.SchedulePolicies{}
	}
	is.Policy.Overlap, is.Policy.CatchupWindow = enumspb.SCHEDULE_OVERLAP_POLICY_SKIP, s.CatchupWindow
	return &client.ScheduleUpdate{Schedule: &is}, nil
}

// same reports whether the schedule is as it should be. Encrypted parameters
// can't be compared, and are written anew.
func (s Schedule) same(is client.Schedule) bool {
	action, ok := is.Action.(*client.ScheduleWorkflowAction)
	if !ok || is.Spec == nil || is.Policy == nil || len(action.Args) != 1 {
		return false
	}
	params, err := converter.GetDefaultDataConverter().ToPayload(s.Params)
	given, encoded := action.Args[0].(*commonpb.Payload)
	want := s.action()
	return err == nil && encoded && bytes.Equal(params.GetData(), given.GetData()) &&
		action.Workflow == want.Workflow && action.ID == want.ID && action.TaskQueue == want.TaskQueue &&
		action.WorkflowExecutionTimeout == want.WorkflowExecutionTimeout && action.StaticSummary == want.StaticSummary &&
		len(is.Spec.Intervals) == 1 && is.Spec.Intervals[0] == client.ScheduleIntervalSpec{Every: s.Interval} &&
		len(is.Spec.Calendars) == 0 && is.Spec.Jitter == s.Jitter &&
		is.Policy.Overlap == enumspb.SCHEDULE_OVERLAP_POLICY_SKIP && is.Policy.CatchupWindow == s.CatchupWindow
}
