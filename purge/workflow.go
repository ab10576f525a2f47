package purge

import (
	"slices"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/ledger"
)

const (
	// maxRounds bounds a run's history; the next one is continued as new.
	maxRounds = 20
	// heartbeat is how soon a lost worker is noticed. A batch and the wait for its
	// connection must be done by then.
	heartbeat = time.Minute
	// narrowest is the shortest stretch that is still cut in two.
	narrowest = 2 * time.Second
)

// Workflow is maintenance.purge. Its code is pinned by a stored history: change
// it only by workflow.GetVersion.
func Workflow(ctx workflow.Context, p Params) (Result, error) {
	given := p
	p = p.withDefaults()
	if err := p.validate(); err != nil {
		return Result{}, temporal.NewNonRetryableApplicationError("purge: "+err.Error(), "effectonce.Invalid", nil)
	}
	c := p.Carried
	if c == nil {
		var err error
		if c, err = begin(ctx, p); err != nil {
			return Result{}, err
		}
	}
	for round := 1; ; round++ {
		if err := c.round(ctx, p); err != nil {
			return Result{}, err
		}
		switch {
		case c.done(), !workflow.Now(ctx).Before(c.Until):
			return c.result(), nil
		case round == maxRounds, workflow.GetInfo(ctx).GetContinueAsNewSuggested():
			given.Carried = c
			return Result{}, workflow.NewContinueAsNewError(ctx, WorkflowType, given)
		}
	}
}

// begin starts a run where the last one of the schedule has ended.
func begin(ctx workflow.Context, p Params) (*Carried, error) {
	var last Result
	if workflow.HasLastCompletionResult(ctx) {
		if err := workflow.GetLastCompletionResult(ctx, &last); err != nil {
			last = Result{} // of another version: everything is swept again
		}
	}
	c := &Carried{Until: workflow.Now(ctx).Add(p.Budget)}
	var marks []Mark
	if err := workflow.ExecuteActivity(options(ctx, p, p.Budget), BeginActivity, last.Marks).Get(ctx, &marks); err != nil {
		return nil, err
	}
	for _, m := range marks {
		c.Tables = append(c.Tables, Table{Mark: m, Rest: []ledger.PruneRange{{Tenants: m.Tenants, From: m.From}}, Lanes: 1})
	}
	return c, nil
}

// options bound an activity by what is left of the budget. An activity that fails
// because the database is in trouble is tried again less and less often.
func options(ctx workflow.Context, p Params, left time.Duration) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		StartToCloseTimeout:    p.Round + 2*heartbeat,
		ScheduleToCloseTimeout: max(left, 0) + p.Round + 2*heartbeat,
		HeartbeatTimeout:       heartbeat,
		RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second,
		},
	})
}

// lane is one sweep of a round.
type lane struct {
	table  *Table
	future workflow.Future
}

// round lets every lane sweep once, and looks how far they have come.
func (c *Carried) round(ctx workflow.Context, p Params) error {
	actx := options(ctx, p, c.Until.Sub(workflow.Now(ctx)))
	var lanes []lane
	for i := range c.Tables {
		t := &c.Tables[i]
		t.split()
		for n, r := range t.Rest {
			in := sweepInput{Range: r, Size: t.Size, Beside: n > 0, For: p.Round}
			lanes = append(lanes, lane{t, workflow.ExecuteActivity(actx, SweepActivity, in)})
		}
		t.Rest = nil
	}
	shrunk := map[*Table]bool{}
	for _, l := range lanes {
		var s ledger.Swept
		if err := l.future.Get(ctx, &s); err != nil {
			return err
		}
		c.Rows += s.Rows
		l.table.Size = s.Size
		l.table.From = later(l.table.From, s.Rest.Until)
		shrunk[l.table] = shrunk[l.table] || s.Shrunk > 0
		if !s.Done {
			l.table.Rest = append(l.table.Rest, s.Rest)
		}
	}
	for i := range c.Tables {
		t := &c.Tables[i]
		switch {
		case shrunk[t]:
			t.Lanes = max(t.Lanes/2, 1)
		case len(t.Rest) >= t.Lanes:
			t.Lanes = min(2*t.Lanes, p.Lanes)
		}
	}
	return nil
}

// split cuts the widest stretch in two until there is one for each lane.
func (t *Table) split() {
	for len(t.Rest) > 0 && len(t.Rest) < t.Lanes {
		widest := 0
		for i, r := range t.Rest {
			if width(r) > width(t.Rest[widest]) {
				widest = i
			}
		}
		r := t.Rest[widest]
		if width(r) < narrowest {
			return
		}
		older, newer := r, r
		older.Until = r.From.Add(width(r) / 2).Truncate(time.Microsecond)
		newer.From = older.Until
		t.Rest = slices.Replace(t.Rest, widest, widest+1, older, newer)
	}
}

// width is how much time a stretch covers; 0 where that isn't known yet.
func width(r ledger.PruneRange) time.Duration {
	if r.From.IsZero() || r.Until.IsZero() {
		return 0
	}
	return r.Until.Sub(r.From)
}

func (c *Carried) done() bool {
	return !slices.ContainsFunc(c.Tables, func(t Table) bool { return len(t.Rest) > 0 })
}

func (c *Carried) result() Result {
	r := Result{Rows: c.Rows, Done: c.done()}
	for _, t := range c.Tables {
		if len(t.Rest) > 0 {
			t.From = t.Rest[0].From
		}
		r.Marks = append(r.Marks, t.Mark)
	}
	return r
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
