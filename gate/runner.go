package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/effectonce/effectonce/internal/clock"
	"github.com/effectonce/effectonce/internal/telemetry"
	"github.com/effectonce/effectonce/ledger"
)

// Ledger is what the runner needs of a ledger. [*ledger.Store] is the real one.
type Ledger interface {
	// Execute runs the body once, or returns the outcome of the execution that did.
	Execute(ctx context.Context, req ledger.Request, body ledger.Body) (ledger.Result, error)
	// Look reads a key's row; false when there is none.
	Look(ctx context.Context, ref ledger.Ref) (ledger.Row, bool, error)
	// Identity tells this ledger from any other. It connects only if it never has.
	Identity(ctx context.Context) (ledger.Identity, error)
}

// RunnerConfig says what a runner joins. Only Ledger is required.
type RunnerConfig struct {
	Ledger Ledger
	// Gate in front of the ledger. nil: the ledger alone.
	Gate Cache
	// TracerProvider makes the execution's span. Default: the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the metrics. Default: the global one.
	MeterProvider metric.MeterProvider
	// Logger gets one line where a person should know. Default: discards.
	Logger *slog.Logger
}

// Runner joins the gate and the ledger. It is safe for use by many goroutines.
type Runner struct {
	ledger Ledger
	gate   Cache
	tracer trace.Tracer
	meters *meters
	logger *slog.Logger
}

// NewRunner returns a runner. It does no I/O.
func NewRunner(config RunnerConfig) (*Runner, error) {
	if config.Ledger == nil {
		return nil, errors.New("gate: new runner: RunnerConfig.Ledger is nil: pass a *ledger.Store")
	}
	if config.TracerProvider == nil {
		config.TracerProvider = otel.GetTracerProvider()
	}
	if config.MeterProvider == nil {
		config.MeterProvider = otel.GetMeterProvider()
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	meters, err := newMeters(config.MeterProvider)
	if err != nil {
		return nil, fmt.Errorf("gate: new runner: %w", err)
	}
	return &Runner{
		ledger: config.Ledger,
		gate:   config.Gate,
		tracer: config.TracerProvider.Tracer(telemetry.Scope),
		meters: meters,
		logger: config.Logger,
	}, nil
}

// Request is one delivery of an execution.
type Request struct {
	ledger.Request
	// Derived says that the key names one Temporal execution, and Delivery which
	// of its deliveries this is, from 1: a later delivery isn't barred by the
	// token of an earlier one, which Temporal has given up.
	Derived  bool
	Delivery int32
	// Lease is how long the token bars others. Default: what is left of the
	// context's deadline; without one, the ledger's [ledger.Limits.Timeout] and its
	// FinishTimeout, or one minute where it has none.
	Lease time.Duration
}

const (
	defaultLease = time.Minute
	// An entry ends at the gate sooner than its row: by the margin, and by a part
	// of its life, which covers what Valkey's clock and PostgreSQL's may differ in
	// rate.
	margin     = 2 * time.Second
	marginPart = 1000
	// Bounds of the pause between two questions to the gate.
	firstPoll = 10 * time.Millisecond
	lastPoll  = 200 * time.Millisecond
)

// Execute runs the body once for the request's key, or returns the outcome of
// the execution that did. It is the protocol's frame: see the package's text.
// An error is the body's own, as it is, or a [*ledger.Error], or the context's.
func (r *Runner) Execute(ctx context.Context, req Request, body ledger.Body) (ledger.Result, error) {
	began := clock.Now()
	ctx, span := r.start(ctx, &req)
	r.meters.active.Add(ctx, 1)
	outcome := outcomePanicked
	defer func() {
		r.meters.active.Add(ctx, -1)
		r.meters.ended(ctx, &req, outcome, clock.Since(began))
		span.end()
	}()
	result, err := r.execute(ctx, &req, body, span)
	outcome = outcomeOf(ctx, result, err)
	span.record(outcome, result, err)
	return result, err
}

func (r *Runner) execute(ctx context.Context, req *Request, body ledger.Body, span *span) (ledger.Result, error) {
	if err := ctx.Err(); err != nil {
		return ledger.Result{}, fmt.Errorf("gate: the deadline has passed or the caller has gone before the body: %w", err)
	}
	p, replay, err := r.enter(ctx, req, span)
	if err != nil {
		return ledger.Result{}, err
	}
	if replay != nil {
		return *replay, nil
	}
	began, settled := clock.Now(), false
	defer func() {
		if !settled { // a panic goes on unwinding
			p.release()
		}
	}()
	result, err := r.ledger.Execute(ctx, req.Request, body)
	settled = true
	switch {
	case err == nil:
		p.publish(span, result, began)
	case ledger.InDoubt(err):
		// Neither released nor replaced: the token ends with its lease.
	default:
		p.release()
	}
	return result, err
}

// enter is step 1. It returns the answer, or a pass with which to go on: one
// that holds the gate, or one that knows nothing and lets the ledger decide.
func (r *Runner) enter(ctx context.Context, req *Request, span *span) (pass, *ledger.Result, error) {
	if r.gate == nil {
		return pass{}, nil, nil
	}
	identity, err := r.ledger.Identity(ctx)
	if err != nil {
		r.degraded(ctx, span, "no_identity")
		return pass{}, nil, nil
	}
	p := pass{gate: r.gate, req: req, identity: identity, token: newToken(req.Derived, req.Delivery)}
	lease := r.leaseOf(ctx, req)
	if req.Fresh {
		r.gate.Mark(p.name(identity), p.token, lease)
		return p, nil, nil
	}
	until := clock.Now().Add(r.waitOf(req))
	for try := 0; ; try++ {
		answer, err := r.gate.Enter(ctx, p.name(identity), p.token, lease)
		switch {
		case err != nil && ctx.Err() != nil:
			p.release() // the token may have been set all the same
			return pass{}, nil, ctx.Err()
		case err != nil:
			r.degraded(ctx, span, reason(err))
			req.Wait = patience(until)
			return p, nil, nil
		case answer.Entry != nil:
			return p.answer(*answer.Entry)
		case answer.Token == nil, !answer.Token.bars(p.token):
			req.Wait = patience(until)
			return p, nil, nil
		}
		left := clock.Until(until)
		if left <= 0 {
			return r.askOnce(ctx, p, answer.Left, span)
		}
		if err := r.pause(ctx, min(clock.Backoff(try, firstPoll, lastPoll), left)); err != nil {
			return pass{}, nil, err
		}
	}
}

func (r *Runner) degraded(ctx context.Context, span *span, why string) {
	span.degraded(why)
	r.meters.unanswered(ctx, why)
}

// pause is a duplicate's wait between two questions.
func (r *Runner) pause(ctx context.Context, d time.Duration) error {
	r.meters.waiting.Add(ctx, 1)
	defer r.meters.waiting.Add(ctx, -1)
	return clock.Wait(ctx, d)
}

// askOnce asks the ledger before "in flight" is answered: the token's owner may
// have committed and died before its copy.
func (r *Runner) askOnce(ctx context.Context, p pass, lease time.Duration, span *span) (pass, *ledger.Result, error) {
	began := clock.Now()
	row, found, err := r.ledger.Look(ctx, ledger.Ref{Owner: p.req.Owner, Key: p.req.Key})
	if err != nil {
		return pass{}, nil, err
	}
	if found {
		result, ok, err := row.Replays(p.req.Request)
		if err != nil {
			return pass{}, nil, err
		}
		if ok {
			p.publish(span, result, began)
			return pass{}, &result, nil
		}
	}
	return pass{}, nil, ledger.InFlight(max(lease, firstPoll))
}

// pass is what an execution holds of the gate. The zero pass holds nothing.
type pass struct {
	gate     Cache
	req      *Request
	identity ledger.Identity
	token    Token
}

// name is the key at the gate. It begins with the ledger's identity, so that a
// promoted, restored or cloned database never meets another's entries.
func (p pass) name(identity ledger.Identity) string {
	return identity.String() + "/" + p.req.Owner.String() + "/" + p.req.Key.String()
}

// answer answers from the gate alone. An entry that says nothing about this
// request leaves the decision to the ledger.
func (p pass) answer(e Entry) (pass, *ledger.Result, error) {
	row := ledger.Row{
		ID: e.RowID, Attempt: e.Attempt, Status: e.Status, Fingerprint: e.Fingerprint, Outcome: e.Outcome,
		Identity: p.identity,
	}
	result, ok, err := row.Replays(p.req.Request)
	if err != nil {
		return pass{}, nil, err
	}
	if !ok {
		return p, nil, nil // a permanent failure that is to run again
	}
	result.Source = ledger.GateReplay
	return pass{}, &result, nil
}

// publish is step 3. What the ledger doesn't keep isn't kept here either, and
// what isn't copied leaves no token behind. A replay's life was read some time
// after began.
func (p pass) publish(span *span, r ledger.Result, began time.Time) {
	if p.gate == nil {
		return
	}
	left := r.Left
	if r.Source != ledger.Executed {
		left -= clock.Since(began)
	}
	left -= margin + left/marginPart
	if r.RowID == 0 || left <= 0 {
		p.release()
		return
	}
	err := p.gate.Publish(p.name(r.Identity), Entry{
		RowID: r.RowID, Attempt: r.Attempt, Status: r.Status, Fingerprint: p.req.Fingerprint, Outcome: r.Outcome,
	}, left)
	if err != nil {
		span.copyFailed(err)
		p.release()
	}
}

// release is step 4.
func (p pass) release() {
	if p.gate != nil {
		p.gate.Release(p.name(p.identity), p.token)
	}
}

// leaseOf lasts as long as the execution can.
func (r *Runner) leaseOf(ctx context.Context, req *Request) time.Duration {
	if req.Lease > 0 {
		return req.Lease
	}
	if left, ok := clock.Left(ctx); ok {
		return left
	}
	if c := r.Executor().Config(); c.Limits.Timeout > 0 {
		return c.Limits.Timeout + c.FinishTimeout
	}
	return defaultLease
}

func (r *Runner) waitOf(req *Request) time.Duration {
	wait := req.Wait
	if wait == 0 {
		wait = r.Executor().Config().Limits.Wait
	}
	if wait == 0 {
		wait = ledger.DefaultWait
	}
	return max(wait, 0)
}

// patience is what is left to wait at the ledger, which reads 0 as its default.
func patience(until time.Time) time.Duration {
	if left := clock.Until(until); left > 0 {
		return left
	}
	return -1
}
