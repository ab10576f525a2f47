package interceptor_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/client"
	sdkinterceptor "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/gate"
)

// otelTracer is what the SDK's OpenTelemetry plugins are at their core: a tracer
// for its tracing interceptor, whose spans go through the headers.
type otelTracer struct {
	sdkinterceptor.BaseTracer
	trace.Tracer
}

type otelKey struct{}

type otelSpan struct{ trace.Span }

type otelRef struct{ trace.SpanContext }

func (s otelSpan) Finish(*sdkinterceptor.TracerFinishSpanOptions) { s.End() }

func (t otelTracer) Options() sdkinterceptor.TracerOptions {
	return sdkinterceptor.TracerOptions{SpanContextKey: otelKey{}, HeaderKey: "_tracer-data"}
}

func (t otelTracer) MarshalSpan(s sdkinterceptor.TracerSpan) (map[string]string, error) {
	c := s.(otelSpan).SpanContext()
	return map[string]string{"trace": c.TraceID().String(), "span": c.SpanID().String()}, nil
}

func (t otelTracer) UnmarshalSpan(m map[string]string) (sdkinterceptor.TracerSpanRef, error) {
	id, err := trace.TraceIDFromHex(m["trace"])
	if err != nil {
		return nil, err
	}
	span, err := trace.SpanIDFromHex(m["span"])
	return otelRef{trace.NewSpanContext(trace.SpanContextConfig{TraceID: id, SpanID: span, TraceFlags: trace.FlagsSampled, Remote: true})}, err
}

func (t otelTracer) SpanFromContext(ctx context.Context) sdkinterceptor.TracerSpan {
	if s := trace.SpanFromContext(ctx); s.SpanContext().IsValid() {
		return otelSpan{s}
	}
	return nil
}

func (t otelTracer) ContextWithSpan(ctx context.Context, s sdkinterceptor.TracerSpan) context.Context {
	return trace.ContextWithSpan(ctx, s.(otelSpan).Span)
}

func (t otelTracer) StartSpan(o *sdkinterceptor.TracerStartSpanOptions) (sdkinterceptor.TracerSpan, error) {
	ctx := context.Background()
	switch parent := o.Parent.(type) {
	case otelRef:
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent.SpanContext)
	case otelSpan:
		ctx = trace.ContextWithSpan(ctx, parent.Span)
	}
	_, span := t.Start(ctx, o.Operation+":"+o.Name, trace.WithTimestamp(o.Time)) //nolint:spancheck // Finish ends it
	return otelSpan{span}, nil                                                   //nolint:spancheck // Finish ends it
}

// traced has the SDK's tracing interceptor on the client.
func traced(b *bundle, o *client.Options) {
	o.Interceptors = append(o.Interceptors, sdkinterceptor.NewTracingInterceptor(otelTracer{Tracer: b.options.TracerProvider.Tracer("temporal")}))
}

// TestTheSpanIsAChildOfTheActivitys: wherever the tracing interceptor stands, at
// each delivery.
func TestTheSpanIsAChildOfTheActivitys(t *testing.T) {
	t.Parallel()
	for n, on := range map[string]struct {
		client change
		worker func(*bundle) []sdkinterceptor.WorkerInterceptor
	}{
		"on the client": {traced, func(*bundle) []sdkinterceptor.WorkerInterceptor { return nil }},
		"on the worker": {func(*bundle, *client.Options) {}, func(b *bundle) []sdkinterceptor.WorkerInterceptor {
			return []sdkinterceptor.WorkerInterceptor{sdkinterceptor.NewTracingInterceptor(otelTracer{Tracer: b.options.TracerProvider.Tracer("temporal")})}
		}},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			b := setup(t, losing(1), on.client)
			b.worker(t, registerTransfer, func(o *worker.Options) { o.Interceptors = on.worker(b) })
			_, err := b.call(t, workflow.ActivityOptions{}, "does", "a")
			require.NoError(t, err)
			activities := map[trace.SpanID]bool{}
			var ours []tracetest.SpanStub
			for _, s := range b.spans.GetSpans() {
				switch s.Name {
				case "RunActivity:does":
					activities[s.SpanContext.SpanID()] = true
				case gate.SpanName:
					ours = append(ours, s)
				}
			}
			require.Len(t, activities, 2)
			require.Len(t, ours, 2)
			for _, s := range ours {
				require.True(t, activities[s.Parent.SpanID()], "the parent is an activity's span")
			}
			require.NotEqual(t, ours[0].Parent.SpanID(), ours[1].Parent.SpanID())
		})
	}
}
