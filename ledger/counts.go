package ledger

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/effectonce/effectonce/internal/telemetry"
)

// counts are the metrics of what executions meet on their way. How each of them
// was answered is counted by who asks: see package gate.
type counts struct {
	waiting   metric.Int64UpDownCounter
	takeovers metric.Int64Counter
	doubts    metric.Int64Counter
}

func newCounts(provider metric.MeterProvider) (c counts, err error) {
	meter := provider.Meter(telemetry.Scope)
	if c.waiting, err = telemetry.Waiting(meter); err != nil {
		return counts{}, err
	}
	if c.takeovers, err = meter.Int64Counter("effectonce.takeovers", metric.WithUnit("{execution}"),
		metric.WithDescription("Executions that took their key over from a failed or an abandoned one.")); err != nil {
		return counts{}, err
	}
	c.doubts, err = meter.Int64Counter("effectonce.commits_in_doubt", metric.WithUnit("{execution}"),
		metric.WithDescription("Executions whose connection died during COMMIT, by what was found then."))
	return c, err
}

// tookOver tells of a claim that wasn't the key's first.
func (s *Store) tookOver(ctx context.Context, req *Request, attempt int32) {
	if attempt <= 1 {
		return
	}
	trace.SpanFromContext(ctx).AddEvent("effectonce.takeover",
		trace.WithAttributes(attribute.Int("effectonce.ledger.attempt", int(attempt))))
	s.counts.takeovers.Add(ctx, 1, metric.WithAttributes(attribute.String("operation", req.Operation)))
}

// inDoubt tells of an outcome whose COMMIT was never answered, and what became
// of it.
func (s *Store) inDoubt(ctx context.Context, req *Request, f fate, cause, err error) {
	trace.SpanFromContext(ctx).AddEvent("effectonce.commit_in_doubt",
		trace.WithAttributes(attribute.String("effectonce.commit.fate", string(f))))
	s.counts.doubts.Add(ctx, 1, metric.WithAttributes(
		attribute.String("operation", req.Operation), attribute.String("fate", string(f))))
	s.config.Logger.WarnContext(ctx, "commit in doubt", "request", *req, "fate", string(f), "cause", cause, "error", err)
}
