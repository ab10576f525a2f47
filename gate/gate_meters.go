package gate

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/effectonce/effectonce/internal/telemetry"
)

// gateMeters are the gate's metrics.
type gateMeters struct {
	duration metric.Float64Histogram
	dropped  metric.Int64Counter
	answers  telemetry.Labels[string, metric.RecordOption]

	watch    func(*Gate) (metric.Registration, error)
	watching metric.Registration // from Start to Close
}

func newGateMeters(provider metric.MeterProvider) (_ *gateMeters, err error) {
	m, meter := &gateMeters{}, provider.Meter(telemetry.Scope)
	if m.duration, err = meter.Float64Histogram("effectonce.gate.duration", metric.WithUnit("s"),
		metric.WithDescription("How long executions waited for an answer of the gate's."),
		metric.WithExplicitBucketBoundaries(.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1)); err != nil {
		return nil, err
	}
	if m.dropped, err = meter.Int64Counter("effectonce.gate.dropped", metric.WithUnit("{command}"),
		metric.WithDescription("Marks, copies and releases that did not reach the gate.")); err != nil {
		return nil, err
	}
	state, err := meter.Int64ObservableGauge("effectonce.gate.breaker.state",
		metric.WithDescription("0: closed, the gate is asked. 1: half-open, one execution tries it. 2: open, it is left alone."))
	if err != nil {
		return nil, err
	}
	queue, err := meter.Int64ObservableGauge("effectonce.gate.queue", metric.WithUnit("{command}"),
		metric.WithDescription("Marks, copies and releases that wait to be sent."))
	m.watch = func(g *Gate) (metric.Registration, error) {
		return meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
			o.ObserveInt64(state, int64(g.breaker.State()))
			o.ObserveInt64(queue, int64(len(g.queue)))
			return nil
		}, state, queue)
	}
	return m, err
}

// answered says what the gate's answer was, and how long it was waited for.
func (m *gateMeters) answered(ctx context.Context, a Answer, err error, took time.Duration) {
	what := "set"
	switch {
	case err != nil:
		what = reason(err)
	case a.Entry != nil:
		what = "entry"
	case a.Token != nil:
		what = "token"
	}
	m.duration.Record(ctx, took.Seconds(), m.answers.Of(what, func(what string) metric.RecordOption {
		return metric.WithAttributeSet(attribute.NewSet(attribute.String("answer", what)))
	})...)
}
