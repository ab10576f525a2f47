package interceptor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"

	"github.com/effectonce/effectonce/ledger"
	"github.com/effectonce/effectonce/purge"
)

// PluginName is the name under which workers report the plugin.
const PluginName = "effectonce"

// Plugin makes the PostgreSQL effects of a worker's activities happen once. Put
// it into client.Options.Plugins, and every worker made from that client has
// it; or into worker.Options.Plugins. One plugin serves many workers, and may be
// on the client and on the worker at once.
//
// It opens nothing before the first worker starts, and has closed everything
// when the last one has stopped. In a replayer it does nothing at all.
type Plugin struct {
	client.PluginBase
	workerBase

	options Options

	starting sync.Mutex // held while the engine is made; nothing but another start waits for it

	mu         sync.Mutex
	data       converter.DataConverter // from the client, or from the options
	failure    converter.FailureConverter
	seenClient bool
	atOnce     map[string]bool // activity types that Register has registered
	slots      map[string]int  // activity slots of configured workers, by instance
	runs       map[string]runs // by worker that hasn't started yet
	starts     int             // workers that run, and calls of Start
	engine     *engine
	active     int           // executions in flight
	idle       chan struct{} // closed when active falls to 0; nil while it is 0
	left       bool          // the last Close gave up waiting: whoever leaves last closes
}

// The SDK's bases have one name; an alias lets both be embedded.
type workerBase = worker.PluginBase

var (
	_ client.Plugin = (*Plugin)(nil)
	_ worker.Plugin = (*Plugin)(nil)
)

// NewPlugin returns a plugin. It does no I/O. All faults of the options are
// reported together, each naming its field.
func NewPlugin(options Options) (*Plugin, error) {
	options = options.withDefaults()
	if err := options.validate(); err != nil {
		return nil, fmt.Errorf("interceptor: new plugin: %w", err)
	}
	return &Plugin{
		options: options,
		data:    options.DataConverter,
		failure: options.FailureConverter,
		atOnce:  map[string]bool{},
		slots:   map[string]int{},
		runs:    map[string]runs{},
	}, nil
}

// Name implements the SDK's plugins.
func (p *Plugin) Name() string { return PluginName }

// NewClient takes the client's converters: results must be kept as the payloads
// that Temporal would have got.
func (p *Plugin) NewClient(ctx context.Context, o client.PluginNewClientOptions, next func(context.Context, client.PluginNewClientOptions) error) error {
	if err := p.takeConverters(o.ClientOptions.DataConverter, o.ClientOptions.FailureConverter); err != nil {
		return err
	}
	return next(ctx, o)
}

func (p *Plugin) takeConverters(data converter.DataConverter, failure converter.FailureConverter) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.options.DataConverter != nil && !same(p.options.DataConverter, data) || p.seenClient && (!same(p.data, data) || !same(p.failure, failure)) {
		return errors.New("interceptor: Options.DataConverter: the plugin is on clients with different converters: use a plugin for each, and leave Options.DataConverter out where the plugin is on the client")
	}
	p.seenClient = true
	p.data, p.failure = data, failure
	return nil
}

// same compares two converters; those that can't be compared count as the same.
func same(a, b any) bool {
	ta, tb := reflect.TypeOf(a), reflect.TypeOf(b)
	if ta != tb {
		return false
	}
	return ta == nil || !ta.Comparable() || a == b
}

// ConfigureWorker adds the interceptor, once, innermost.
func (p *Plugin) ConfigureWorker(_ context.Context, o worker.PluginConfigureWorkerOptions) error {
	mine := func(i interceptor.WorkerInterceptor) bool {
		w, ok := i.(*workerInterceptor)
		return ok && w.plugin == p
	}
	if slices.ContainsFunc(o.WorkerOptions.Interceptors, mine) {
		return nil
	}
	o.WorkerOptions.Interceptors = append(o.WorkerOptions.Interceptors, p.WorkerInterceptor())
	p.watchRegistrations(o.WorkerRegistryOptions)
	p.watchRuns(o)
	if o.WorkerOptions.Tuner == nil && !o.WorkerOptions.LocalActivityWorkerOnly {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.slots[o.WorkerInstanceKey] = o.WorkerOptions.MaxConcurrentActivityExecutionSize
		if p.slots[o.WorkerInstanceKey] == 0 {
			p.slots[o.WorkerInstanceKey] = defaultSlots
		}
	}
	return nil
}

// defaultSlots is how many activities a worker runs at once unless it is told
// otherwise: worker.Options.MaxConcurrentActivityExecutionSize.
const defaultSlots = 1000

// WorkerInterceptor returns the interceptor alone, for those who put together a
// worker's chain by hand, and for the SDK's test environments, where no plugin
// is started: they call [Plugin.Start] and [Plugin.Close] as well. All test
// environments have one run ID; each interceptor makes keys of its own of it, so
// that tests which take one each don't replay each other.
func (p *Plugin) WorkerInterceptor() interceptor.WorkerInterceptor {
	return &workerInterceptor{plugin: p, salt: rand.Text()}
}

// watchRegistrations learns which activity types begin at once.
func (p *Plugin) watchRegistrations(o *worker.PluginConfigureWorkerRegistryOptions) {
	if o == nil {
		return
	}
	next := o.OnRegisterActivity
	o.OnRegisterActivity = func(a any, options activity.RegisterOptions) {
		if next != nil {
			next(a, options)
		}
		if _, ok := a.(beginsAtOnce); ok {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.atOnce[options.Name] = true
		}
	}
	if o.OnRegisterDynamicActivity == nil {
		o.OnRegisterDynamicActivity = func(any, activity.DynamicRegisterOptions) {} // SDK 1.42 calls it unchecked
	}
}

// StartWorker starts the plugin with its first worker.
func (p *Plugin) StartWorker(ctx context.Context, o worker.PluginStartWorkerOptions, next func(context.Context, worker.PluginStartWorkerOptions) error) error {
	if err := p.Start(ctx); err != nil {
		return err
	}
	p.registerPurge(o)
	p.mu.Lock()
	slots, known := p.slots[o.WorkerInstanceKey]
	p.mu.Unlock()
	if known {
		p.options.Logger.InfoContext(ctx, "activities run at once may be more than there are connections: the rest waits until its deadline",
			"activity_slots", slots, "connections", p.options.Pool.Config().MaxConns)
	}
	if err := next(ctx, o); err != nil {
		return errors.Join(err, p.Close(ctx))
	}
	return nil
}

// StopWorker stops the worker, waits for the executions that outlive it, and
// closes everything with the last one, bounded by Options.DrainTimeout.
func (p *Plugin) StopWorker(ctx context.Context, o worker.PluginStopWorkerOptions, next func(context.Context, worker.PluginStopWorkerOptions)) {
	next(ctx, o)
	p.mu.Lock()
	delete(p.slots, o.WorkerInstanceKey)
	p.mu.Unlock()
	if err := p.Close(ctx); err != nil {
		p.options.Logger.WarnContext(ctx, "worker stopped before all was drained", "error", err)
	}
}

// Start connects and checks what the options name: the ledger's tables and
// rights, and Valkey's credentials. A Valkey that is merely down is no error.
// Workers that have the plugin call it themselves. It takes 30 s at most, and
// leaves nothing when it fails. Each call that succeeds wants its Close.
func (p *Plugin) Start(ctx context.Context) error {
	p.starting.Lock()
	defer p.starting.Unlock()
	if p.startAgain() {
		return nil
	}
	p.mu.Lock()
	c, known := newCodec(p.data, p.failure), p.seenClient || p.data != nil
	p.mu.Unlock()
	if !known {
		return errors.New("interceptor: start: Options.DataConverter is nil and the plugin is on no client, so that it can't know how results are encoded: put the plugin into client.Options.Plugins, or pass the client's converter (converter.GetDefaultDataConverter() by default)")
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	e, err := newEngine(ctx, p.options, c)
	if err != nil {
		return fmt.Errorf("interceptor: start: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.engine = e
	p.starts++
	return nil
}

// startTimeout bounds what a start waits for PostgreSQL and Valkey.
const startTimeout = 30 * time.Second

// startAgain joins the engine that is there.
func (p *Plugin) startAgain() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.engine == nil {
		return false
	}
	p.starts++
	p.left = false
	return true
}

// Close undoes one Start; the last one waits for the executions in flight and
// the copies to the gate, bounded by Options.DrainTimeout, and closes everything.
// Executions that last longer keep what they need; the last of them closes it.
func (p *Plugin) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.options.DrainTimeout)
	defer cancel()
	p.mu.Lock()
	last := p.starts == 1
	p.starts = max(p.starts-1, 0)
	idle := p.idle
	p.mu.Unlock()
	if !last {
		return nil
	}
	if idle != nil {
		select {
		case <-idle:
		case <-ctx.Done():
			p.mu.Lock()
			p.left = p.active > 0 && p.starts == 0
			left := p.left
			p.mu.Unlock()
			if left {
				return fmt.Errorf("interceptor: close: executions are still running, and the last of them closes what it needs: %w", ctx.Err())
			}
		}
	}
	p.mu.Lock()
	e := p.take()
	p.mu.Unlock()
	if e == nil {
		return nil
	}
	return e.close(ctx)
}

// take takes the engine away, unless somebody needs it. Under mu.
func (p *Plugin) take() *engine {
	if p.starts > 0 || p.active > 0 {
		return nil
	}
	e := p.engine
	p.engine, p.left = nil, false
	return e
}

// enter counts an execution in and returns what it runs with.
func (p *Plugin) enter() (*engine, func(), error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.engine == nil {
		return nil, nil, ledger.NewError(ledger.CodeUnavailable, "the plugin isn't started: a worker that has it as a plugin starts it; with the interceptor alone, call Plugin.Start", nil)
	}
	if p.active == 0 {
		p.idle = make(chan struct{})
	}
	p.active++
	return p.engine, p.leave, nil
}

func (p *Plugin) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active--
	if p.active > 0 {
		return
	}
	close(p.idle)
	p.idle = nil
	if !p.left {
		return
	}
	if e := p.take(); e != nil {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), p.options.DrainTimeout)
			defer cancel()
			if err := e.close(ctx); err != nil {
				p.options.Logger.WarnContext(ctx, "worker stopped before all was drained", "error", err)
			}
		}()
	}
}

// policy returns the activity type's policy, what Register says included.
func (p *Plugin) policy(activityType string) Policy {
	if purge.Owns(activityType) {
		return Policy{Mode: Off}
	}
	policy := p.options.policy(activityType)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.atOnce[activityType] {
		policy.Begin = ledger.BeginAtOnce
	}
	return policy
}
