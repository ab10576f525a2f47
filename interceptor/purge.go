package interceptor

import (
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/ledger"
	"github.com/effectonce/effectonce/purge"
)

// runs is what a worker has registered of its user's.
type runs struct{ workflows, activities bool }

// watchRuns learns what a worker runs. One that runs no workflows must not begin
// to poll for them because of the purge: it would fail those of other workers.
func (p *Plugin) watchRuns(o worker.PluginConfigureWorkerOptions) {
	registry := o.WorkerRegistryOptions
	if registry == nil {
		return
	}
	note := func(change func(*runs)) {
		p.mu.Lock()
		defer p.mu.Unlock()
		r := p.runs[o.WorkerInstanceKey]
		change(&r)
		p.runs[o.WorkerInstanceKey] = r
	}
	onWorkflow, onDynamic := registry.OnRegisterWorkflow, registry.OnRegisterDynamicWorkflow
	registry.OnRegisterWorkflow = func(w any, options workflow.RegisterOptions) {
		if onWorkflow != nil {
			onWorkflow(w, options)
		}
		note(func(r *runs) { r.workflows = true })
	}
	registry.OnRegisterDynamicWorkflow = func(w any, options workflow.DynamicRegisterOptions) {
		if onDynamic != nil {
			onDynamic(w, options)
		}
		note(func(r *runs) { r.workflows = true })
	}
	local, onActivity := o.WorkerOptions.LocalActivityWorkerOnly, registry.OnRegisterActivity
	registry.OnRegisterActivity = func(a any, options activity.RegisterOptions) {
		if onActivity != nil {
			onActivity(a, options)
		}
		note(func(r *runs) { r.activities = !local })
	}
}

// registerPurge adds the purge to a worker that starts: its workflow where the
// worker runs workflows, its activities where it runs activities.
func (p *Plugin) registerPurge(o worker.PluginStartWorkerOptions) {
	p.mu.Lock()
	r := p.runs[o.WorkerInstanceKey]
	delete(p.runs, o.WorkerInstanceKey)
	p.mu.Unlock()
	if r.workflows {
		purge.RegisterWorkflow(o.WorkerRegistry)
	}
	if r.activities {
		purge.RegisterActivities(o.WorkerRegistry, func() (*ledger.Store, func(), error) {
			e, leave, err := p.enter()
			if err != nil {
				return nil, nil, err
			}
			return e.store, leave, nil
		})
	}
	p.mu.Lock()
	delete(p.runs, o.WorkerInstanceKey) // what was just registered is not the user's
	p.mu.Unlock()
}

// longestRetention is that of the policies. An activity whose ScheduleToClose
// timeout is longer is unknown here; what is purged early of its abandoned
// leases is their count of attempts.
func (o Options) longestRetention() time.Duration {
	longest := max(ledger.DefaultRetention, o.Default.Retention)
	for _, policy := range o.Policies {
		longest = max(longest, policy.Retention)
	}
	return longest
}
