package purge

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/ledger"
)

// The names by which Temporal knows the workflow and its activities.
const (
	WorkflowType  = "maintenance.purge"
	BeginActivity = WorkflowType + ".begin"
	SweepActivity = WorkflowType + ".sweep"
)

// Owns reports whether the activity type is one of the purge's own, which don't
// go through the ledger.
func Owns(activityType string) bool { return strings.HasPrefix(activityType, WorkflowType+".") }

// WorkflowRegistry is what [RegisterWorkflow] needs of a worker.
type WorkflowRegistry interface {
	RegisterWorkflowWithOptions(w any, options workflow.RegisterOptions)
}

// ActivityRegistry is what [RegisterActivities] needs of a worker.
type ActivityRegistry interface {
	RegisterActivityWithOptions(a any, options activity.RegisterOptions)
}

// Registry is what [Register] needs of a worker, which is one itself.
type Registry interface {
	WorkflowRegistry
	ActivityRegistry
}

// Open hands the activities the store for one use, which ends with the function
// it returns.
type Open func() (*ledger.Store, func(), error)

// Register registers the workflow and its activities, which purge the store.
// The store is borrowed: close it after the worker has stopped. Registering
// twice is harmless.
func Register(r Registry, store *ledger.Store) {
	RegisterWorkflow(r)
	RegisterActivities(r, func() (*ledger.Store, func(), error) { return store, func() {}, nil })
}

// RegisterWorkflow registers the workflow alone, for a worker without activities.
func RegisterWorkflow(r WorkflowRegistry) {
	r.RegisterWorkflowWithOptions(Workflow, workflow.RegisterOptions{
		Name: WorkflowType, DisableAlreadyRegisteredCheck: true,
		VersioningBehavior: workflow.VersioningBehaviorAutoUpgrade, // asked for by workers that are versioned
	})
}

// RegisterActivities registers the activities alone, for a worker without
// workflows, or for a store that is there only while the worker runs.
func RegisterActivities(r ActivityRegistry, open Open) {
	a := activities{open}
	r.RegisterActivityWithOptions(a.begin, activity.RegisterOptions{Name: BeginActivity, DisableAlreadyRegisteredCheck: true})
	r.RegisterActivityWithOptions(a.sweep, activity.RegisterOptions{Name: SweepActivity, DisableAlreadyRegisteredCheck: true})
}

// Defaults of [Params].
const (
	DefaultBudget = 10 * time.Minute
	DefaultRound  = 20 * time.Second
	DefaultLanes  = 4
)

// Params say how far one run of the workflow goes. The zero value of each field
// is its default.
type Params struct {
	// Budget is how long a run may sweep, continuations included. What is left
	// then is the next run's. Default 10 min, at least 1 s.
	Budget time.Duration `json:"budget,omitempty"`
	// Round is how long one activity sweeps before the workflow looks how far
	// all have come. Default 20 s, 100 ms to 10 min.
	Round time.Duration `json:"round,omitempty"`
	// Lanes is how many activities may sweep one table side by side when one
	// doesn't keep up. Each takes one connection, for each batch. Default 4, 1 to 32.
	Lanes int `json:"lanes,omitempty"`
	// Carried is how far the run has come before it was continued as new. Leave
	// it out.
	Carried *Carried `json:"carried,omitempty"`
}

func (p Params) withDefaults() Params {
	if p.Budget == 0 {
		p.Budget = DefaultBudget
	}
	if p.Round == 0 {
		p.Round = DefaultRound
	}
	if p.Lanes == 0 {
		p.Lanes = DefaultLanes
	}
	return p
}

func (p Params) validate() error {
	var faults []error
	if p.Budget < time.Second {
		faults = append(faults, fmt.Errorf("Params.Budget is %s: use at least 1s, or 0 for %s", p.Budget, DefaultBudget))
	}
	if p.Round < 100*time.Millisecond || p.Round > 10*time.Minute {
		faults = append(faults, fmt.Errorf("Params.Round is %s: use 100ms to 10m, or 0 for %s", p.Round, DefaultRound))
	}
	if p.Lanes < 1 || p.Lanes > 32 {
		faults = append(faults, fmt.Errorf("Params.Lanes is %d: use 1 to 32, or 0 for %d", p.Lanes, DefaultLanes))
	}
	return errors.Join(faults...)
}

// Result is what a run has done. The next run of the schedule resumes by it.
type Result struct {
	// Rows were deleted, surely.
	Rows int `json:"rows"`
	// Done says that nothing expired was left but what others had locked.
	Done bool `json:"done"`
	// Marks are how far the tables were swept.
	Marks []Mark `json:"marks"`
}

// Mark is how far one table was swept.
type Mark struct {
	// Tenants says which table: the tenants' keys, or the platform's.
	Tenants bool `json:"tenants,omitempty"`
	ledger.PruneMark
	// Size is that of the last batch.
	Size int `json:"size,omitempty"`
}

// Carried is a run's state, handed on when it continues as new.
type Carried struct {
	Rows   int       `json:"rows"`
	Until  time.Time `json:"until"` // when the budget is spent
	Tables []Table   `json:"tables"`
}

// Table is how far a run has come with one table.
type Table struct {
	Mark
	// Rest is what is left to sweep, the oldest first.
	Rest []ledger.PruneRange `json:"rest,omitempty"`
	// Lanes is how many sweeps there are side by side.
	Lanes int `json:"lanes"`
}
