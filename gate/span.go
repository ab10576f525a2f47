package gate

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/effectonce/effectonce/ledger"
)

// SpanName is the name of the span that each execution has.
const SpanName = "effectonce.execute"

// The span's attributes. None holds an input or a result.
const (
	// AttrKey is the key's digest, in hexadecimal.
	AttrKey = attribute.Key("effectonce.key")
	// AttrOwner is the key's owner.
	AttrOwner = attribute.Key("effectonce.owner")
	// AttrOperation is the kind of work.
	AttrOperation = attribute.Key("effectonce.operation")
	// AttrDelivery is the caller's count of deliveries: Temporal's attempt.
	AttrDelivery = attribute.Key("effectonce.delivery")
	// AttrOutcome says how the execution was answered: executed, gate_replay,
	// ledger_replay, failed (the body's own error), canceled (the context ended
	// first), panicked, or an error's code.
	AttrOutcome = attribute.Key("effectonce.outcome")
	// AttrFailure is true where the answer is a recorded failure.
	AttrFailure = attribute.Key("effectonce.failure")
	// AttrDegraded says why the gate could not answer: timeout, breaker_open,
	// foreign (what stands there isn't ours), error, no_identity.
	AttrDegraded = attribute.Key("effectonce.degraded")
	// AttrLate is true where the delivery comes later than the ledger can remember.
	AttrLate = attribute.Key("effectonce.late")
	// AttrRowID and AttrAttempt name the claim that did the work; on a replay
	// they lead to the execution that ran.
	AttrRowID   = attribute.Key("effectonce.ledger.row_id")
	AttrAttempt = attribute.Key("effectonce.ledger.attempt")
)

// The events on the span. The ledger adds its own.
const (
	// eventOpened and eventClosed: this execution saw the breaker change.
	eventOpened = "effectonce.breaker_opened"
	eventClosed = "effectonce.breaker_closed"
	// eventCopyFailed: the outcome isn't copied to the gate, and why.
	eventCopyFailed = "effectonce.copy_failed"
)

type span struct{ trace.Span }

func (r *Runner) start(ctx context.Context, req *Request) (context.Context, *span) {
	ctx, s := r.tracer.Start(ctx, SpanName)
	if s.IsRecording() {
		s.SetAttributes(
			AttrKey.String(req.Key.String()),
			AttrOwner.String(req.Owner.String()),
			AttrOperation.String(req.Operation),
			AttrDelivery.Int(int(req.Delivery)),
		)
	}
	return ctx, &span{s}
}

func (s *span) end() { s.End() }

func (s *span) degraded(why string) { s.SetAttributes(AttrDegraded.String(why)) }

func (s *span) copyFailed(err error) {
	if !errors.Is(err, ErrTooLarge) {
		s.AddEvent(eventCopyFailed, trace.WithAttributes(AttrDegraded.String(reason(err))))
	}
}

// record says what became of the execution. A body's own error isn't told: its
// text may hold what isn't ours to show.
func (s *span) record(outcome string, r ledger.Result, err error) {
	if !s.IsRecording() {
		return
	}
	s.SetAttributes(AttrOutcome.String(outcome))
	if err != nil {
		s.SetStatus(codes.Error, outcome)
		return
	}
	s.SetAttributes(
		AttrFailure.Bool(r.Status == ledger.FailedPermanent),
		AttrRowID.Int64(r.RowID),
		AttrAttempt.Int(int(r.Attempt)),
	)
}

// The outcomes that are neither a result's source nor an error's code.
const (
	outcomeFailed   = "failed"   // the body's own error
	outcomeCanceled = "canceled" // the context ended first
	outcomePanicked = "panicked" // the body did, and goes on unwinding
)

func outcomeOf(ctx context.Context, r ledger.Result, err error) string {
	switch code := ledger.CodeOf(err); {
	case err == nil:
		return string(r.Source)
	case code != "":
		return string(code)
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return outcomeCanceled
	default:
		return outcomeFailed
	}
}

func reason(err error) string {
	switch {
	case errors.Is(err, ErrOpen):
		return "breaker_open"
	case errors.Is(err, ErrTimeout):
		return "timeout"
	case errors.Is(err, errForeign):
		return "foreign"
	default:
		return "error"
	}
}
