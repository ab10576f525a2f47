package interceptor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/interceptor"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/internal/clock"
	"github.com/effectonce/effectonce/ledger"
	"github.com/effectonce/effectonce/purge"
)

// workerInterceptor is what the plugin puts into a worker's chain. It sits
// innermost, so that its span is a child of the activity's own.
type workerInterceptor struct {
	interceptor.WorkerInterceptorBase
	plugin *Plugin
	salt   string // for a test environment's run ID
}

// testRunID is the run ID of every workflow in the SDK's test environments.
const testRunID = "default-test-run-id"

// run makes the run IDs of different test environments differ, so that one test
// doesn't replay another. A server's run ID stays what it is.
func (w *workerInterceptor) run(id string) string {
	if id != testRunID {
		return id
	}
	return id + "/" + w.salt
}

func (w *workerInterceptor) InterceptActivity(_ context.Context, next interceptor.ActivityInboundInterceptor) interceptor.ActivityInboundInterceptor {
	return &activityInbound{
		ActivityInboundInterceptorBase: interceptor.ActivityInboundInterceptorBase{Next: next},
		worker:                         w,
	}
}

type activityInbound struct {
	interceptor.ActivityInboundInterceptorBase
	worker *workerInterceptor
}

// Init puts the plugin's heartbeats into the other direction of the chain.
func (a *activityInbound) Init(outbound interceptor.ActivityOutboundInterceptor) error {
	return a.Next.Init(&activityOutbound{interceptor.ActivityOutboundInterceptorBase{Next: outbound}})
}

// The activities that the SDK runs for its sessions pass through too. They are
// left alone, as the purge's are.
const (
	sessionCreation   = "internalSessionCreationActivity"
	sessionCompletion = "internalSessionCompletionActivity"
)

// ExecuteActivity routes one delivery through the runner.
func (a *activityInbound) ExecuteActivity(ctx context.Context, in *interceptor.ExecuteActivityInput) (any, error) {
	info := activity.GetInfo(ctx)
	policy := a.worker.plugin.policy(info.ActivityType.Name)
	if info.ActivityType.Name == sessionCreation || info.ActivityType.Name == sessionCompletion || purge.Owns(info.ActivityType.Name) {
		return a.Next.ExecuteActivity(ctx, in)
	}
	id, stamped, err := readStamp(ctx)
	switch {
	case err != nil:
		return nil, toTemporal(ctx, info, noKey(info, err))
	case stamped:
		policy.Mode = id.mode
	case policy.Mode == Off:
	case info.IsLocalActivity:
		value, err := a.Next.ExecuteActivity(ledger.Refuse(ctx, errLocal), in)
		if errors.Is(err, errLocal) {
			err = errLocal // however the body has wrapped it: it must not be retried
		}
		return value, toTemporal(ctx, info, err)
	default:
		if id, _, err = policy.identify(info.ActivityType.Name, declared{}, in.Args); err != nil {
			return nil, toTemporal(ctx, info, noKey(info, err))
		}
	}
	if policy.Mode == Off {
		return a.Next.ExecuteActivity(ctx, in)
	}
	eng, leave, err := a.worker.plugin.enter()
	if err != nil {
		return nil, toTemporal(ctx, info, err)
	}
	defer leave()
	salted := info
	salted.WorkflowExecution.RunID = a.worker.run(info.WorkflowExecution.RunID)
	request, err := newRequest(ctx, salted, policy, id)
	if err == nil && !id.business {
		err = eng.keyless(ctx, info, policy)
	}
	if err != nil {
		return nil, toTemporal(ctx, info, err)
	}
	e := &execution{activityInbound: a, engine: eng, info: info, in: in, beats: &beats{lease: request.Lease}}
	request.Failure = e.failure
	e.late = !info.ScheduledTime.IsZero() && clock.Since(info.ScheduledTime) > request.Retention
	request.Late = e.late && policy.Late == LateRefuse
	result, err := eng.runner.Execute(ctx, request, e.body)
	eng.memory.tooShort(ctx, info, request.Retention)
	if e.late && (e.ran && result.Attempt <= 1 || ledger.CodeOf(err) == ledger.CodeExpired) {
		eng.memory.cameLate(ctx, info, request.Retention, e.ran)
	}
	switch {
	case err != nil:
		return nil, toTemporal(ctx, info, err)
	case result.Source == ledger.Executed:
		return e.value, nil
	}
	value, err := eng.codec.decode(info, result)
	return value, toTemporal(ctx, info, err)
}

var errLocal = ledger.NewError(ledger.CodeInvalid, "this local activity has no transaction of the ledger's: its calls can't be told apart across retries unless the workflow's worker has the plugin too, and stamps them", nil)

func noKey(info activity.Info, cause error) *ledger.Error {
	return ledger.NewError(ledger.CodeInvalid, fmt.Sprintf("no key for the activity %s: %s", info.ActivityType.Name, cause), nil)
}

// execution is one delivery on its way through the runner.
type execution struct {
	*activityInbound
	engine *engine
	info   activity.Info
	in     *interceptor.ExecuteActivityInput
	beats  *beats
	late   bool // the ledger can't remember as far back as the scheduling
	ran    bool
	value  any // the fresh result, as the SDK will get it
}

// body calls the activity and encodes its result while the transaction is
// still open, so that a result that can't be encoded commits nothing.
func (e *execution) body(ctx context.Context) (ledger.Outcome, error) {
	e.ran = true
	if e.late {
		trace.SpanFromContext(ctx).SetAttributes(gate.AttrLate.Bool(true))
	}
	value, err := e.Next.ExecuteActivity(context.WithValue(ctx, beatsKey{}, e.beats), e.in)
	if err != nil {
		x, ok := ledger.FromContext(ctx)
		if errors.Is(err, activity.ErrResultPending) && ok && x.Asked() {
			return ledger.Outcome{}, ledger.NewError(ledger.CodeInvalid, "the activity wants to complete asynchronously, but has asked for its transaction, which ends when it returns; do one or the other; nothing was committed", nil)
		}
		return ledger.Outcome{}, err
	}
	outcome, payloads, err := e.engine.codec.encodeResult(ctx, e.info, value)
	if err != nil {
		return ledger.Outcome{}, err // as the SDK says it
	}
	if payloads != nil {
		e.value = payloads
		if err := e.engine.limits.check(ctx, e.info, payloads); err != nil {
			return ledger.Outcome{}, err
		}
	}
	return outcome, nil
}

func (e *execution) failure(err error) ledger.Failure {
	return e.engine.codec.encodeFailure(e.info, err)
}

// newRequest says how this delivery is called and how it may run.
func newRequest(ctx context.Context, info activity.Info, policy Policy, id identity) (gate.Request, error) {
	if id.key.IsZero() {
		var err error
		if id.key, err = DeriveKey(info); err != nil {
			return gate.Request{}, noKey(info, err)
		}
		id.fingerprint = derivedFingerprint(id.key)
	}
	begin, held := policy.Begin, lease(ctx, info)
	if policy.Mode == Leased {
		begin = ledger.BeginLeased
	}
	return gate.Request{
		Request: ledger.Request{
			Owner:          id.owner,
			Key:            id.key,
			Fingerprint:    id.fingerprint,
			Operation:      info.ActivityType.Name,
			Fresh:          info.Attempt <= 1 && !id.business && !info.IsLocalActivity,
			Begin:          begin,
			Lease:          held,
			Isolation:      policy.Isolation,
			Retention:      retention(info, policy),
			Wait:           wait(ctx, info, policy),
			Marker:         id.business && policy.Result == KeepMarker,
			RerunPermanent: policy.Permanent == PermanentRerun || policy.Permanent == PermanentDefault && id.business,
		},
		Derived:  !id.business && !info.IsLocalActivity,
		Delivery: info.Attempt,
		Lease:    held,
	}, nil
}

// retention covers every retry that Temporal may still make.
func retention(info activity.Info, policy Policy) time.Duration {
	switch {
	case policy.Retention > 0:
		return policy.Retention
	case info.ScheduleToCloseTimeout > 0:
		return info.ScheduleToCloseTimeout + RetentionMargin
	default:
		return ledger.DefaultRetention
	}
}

// wait is how long a duplicate waits in place: never over half the heartbeat
// timeout, in which nobody heartbeats, nor half of what is left of the attempt.
func wait(ctx context.Context, info activity.Info, policy Policy) time.Duration {
	w := policy.Wait
	if w < 0 {
		return w
	}
	if w == 0 {
		w = ledger.DefaultWait
	}
	if info.HeartbeatTimeout > 0 {
		w = min(w, info.HeartbeatTimeout/2)
	}
	if left, ok := clock.Left(ctx); ok {
		w = min(w, left/2)
	}
	return max(w, 1)
}

// lease is how long the gate's token bars others: Temporal's own limit on how
// long it takes an attempt for alive.
func lease(ctx context.Context, info activity.Info) time.Duration {
	l := info.StartToCloseTimeout
	if left, ok := clock.Left(ctx); ok {
		l = left
	}
	if info.HeartbeatTimeout > 0 {
		l = min(l, info.HeartbeatTimeout)
	}
	return l
}

var _ interceptor.WorkerInterceptor = (*workerInterceptor)(nil)
