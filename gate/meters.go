package gate

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/effectonce/effectonce/internal/telemetry"
	"github.com/effectonce/effectonce/ledger"
)

// meters are the runner's metrics. Their attributes have few values: how long
// each operation takes is in Temporal's own metrics, and so only counted here.
type meters struct {
	executions metric.Int64Counter
	duration   metric.Float64Histogram
	active     metric.Int64UpDownCounter
	waiting    metric.Int64UpDownCounter
	degraded   metric.Int64Counter

	counted telemetry.Labels[answered, metric.AddOption]
	timed   telemetry.Labels[answered, metric.RecordOption]
	reasons telemetry.Labels[string, metric.AddOption]
}

// answered is what is said of an execution that has ended.
type answered struct{ operation, outcome, mode string }

func newMeters(provider metric.MeterProvider) (_ *meters, err error) {
	m, meter := &meters{}, provider.Meter(telemetry.Scope)
	if m.executions, err = meter.Int64Counter("effectonce.executions", metric.WithUnit("{execution}"),
		metric.WithDescription("Executions, by how they were answered.")); err != nil {
		return nil, err
	}
	if m.duration, err = meter.Float64Histogram("effectonce.execution.duration", metric.WithUnit("s"),
		metric.WithDescription("How long an execution took, its body and a duplicate's wait included."),
		metric.WithExplicitBucketBoundaries(.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600)); err != nil {
		return nil, err
	}
	if m.active, err = meter.Int64UpDownCounter("effectonce.executions.active", metric.WithUnit("{execution}"),
		metric.WithDescription("Executions that are under way in this process, replays and those that wait included.")); err != nil {
		return nil, err
	}
	if m.degraded, err = meter.Int64Counter("effectonce.executions.degraded", metric.WithUnit("{execution}"),
		metric.WithDescription("Executions that the gate could not answer, so that the ledger alone decided.")); err != nil {
		return nil, err
	}
	m.waiting, err = telemetry.Waiting(meter)
	return m, err
}

// ended counts an execution, and says how long it took.
func (m *meters) ended(ctx context.Context, req *Request, outcome string, took time.Duration) {
	how := answered{operation: req.Operation, outcome: outcome, mode: modeOf(req)}
	m.executions.Add(ctx, 1, m.counted.Of(how, func(a answered) metric.AddOption {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String("operation", a.operation),
			attribute.String("outcome", a.outcome), attribute.String("mode", a.mode)))
	})...)
	how.operation = ""
	m.duration.Record(ctx, took.Seconds(), m.timed.Of(how, func(a answered) metric.RecordOption {
		return metric.WithAttributeSet(attribute.NewSet(
			attribute.String("outcome", a.outcome), attribute.String("mode", a.mode)))
	})...)
}

// unanswered counts an execution that the gate left to the ledger.
func (m *meters) unanswered(ctx context.Context, reason string) {
	m.degraded.Add(ctx, 1, m.reasons.Of(reason, func(reason string) metric.AddOption {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String("reason", reason)))
	})...)
}

func modeOf(req *Request) string {
	if req.Begin == ledger.BeginLeased {
		return "leased"
	}
	return "transactional"
}
