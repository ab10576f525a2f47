package gate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/ledger"
)

// last is the newest span.
func (b *bundle) last(t *testing.T) trace.ReadOnlySpan {
	t.Helper()
	spans := b.recorder.Ended()
	require.NotEmpty(t, spans)
	return spans[len(spans)-1]
}

// attribute is one of the newest span's.
func (b *bundle) attribute(t *testing.T, key attribute.Key) attribute.Value {
	t.Helper()
	for _, a := range b.last(t).Attributes() {
		if a.Key == key {
			return a.Value
		}
	}
	return attribute.Value{}
}

// events are the names of the newest span's.
func (b *bundle) events(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, e := range b.last(t).Events() {
		names = append(names, e.Name)
	}
	return names
}

// TestSpans: each execution has one, a child of its caller's, that says what
// became of it and, on a replay, who did the work.
func TestSpans(t *testing.T) {
	t.Parallel()
	b := setup(t)
	parent := trace.NewTracerProvider().Tracer("the activity's")
	type wanted struct {
		outcome string
		attempt int64 // of the claim that did the work; 0: none is named
		status  codes.Code
		failure bool
	}
	deliver := func(name string, req gate.Request, body ledger.Body, want wanted) {
		t.Helper()
		ctx, activity := parent.Start(t.Context(), "activity")
		defer activity.End()
		before := len(b.recorder.Ended())
		r, err := b.runner.Execute(ctx, req, body)
		require.Equal(t, want.status == codes.Error, err != nil, "%s: %v", name, err)
		require.Len(t, b.recorder.Ended(), before+1)
		b.settle(t)

		span := b.last(t)
		require.Equal(t, gate.SpanName, span.Name())
		require.Equal(t, activity.SpanContext().SpanID(), span.Parent().SpanID())
		require.Equal(t, want.status, span.Status().Code, name)
		require.Equal(t, want.outcome, b.attribute(t, gate.AttrOutcome).AsString(), name)
		require.Equal(t, want.failure, b.attribute(t, gate.AttrFailure).AsBool(), name)
		require.Equal(t, want.attempt, b.attribute(t, gate.AttrAttempt).AsInt64(), name)
		require.Equal(t, r.RowID, b.attribute(t, gate.AttrRowID).AsInt64(), name)
		require.Equal(t, req.Key.String(), b.attribute(t, gate.AttrKey).AsString())
		require.Equal(t, req.Owner.String(), b.attribute(t, gate.AttrOwner).AsString())
		require.Equal(t, "test", b.attribute(t, gate.AttrOperation).AsString())
		require.EqualValues(t, req.Delivery, b.attribute(t, gate.AttrDelivery).AsInt64())
		require.Empty(t, b.attribute(t, gate.AttrDegraded).AsString(), name)
	}
	failed := wanted{outcome: "failed", status: codes.Error}
	a, p := business("a"), business("p")
	deliver("failed", a, fails(errBody), failed)
	deliver("takeover", a, writes("a"), wanted{outcome: "executed", attempt: 2})
	require.Equal(t, []string{"effectonce.takeover"}, b.events(t))
	deliver("gate hit", a, never(t), wanted{outcome: "gate_replay", attempt: 2})
	b.remove(t, a)
	deliver("ledger replay", a, never(t), wanted{outcome: "ledger_replay", attempt: 2})
	mismatched := a
	mismatched.Fingerprint[0]++
	deliver("mismatch", mismatched, never(t), wanted{outcome: "mismatch", status: codes.Error})

	deliver("failed for good", p, fails(errPermanent), failed)
	deliver("failure from the ledger", p, never(t), wanted{outcome: "ledger_replay", attempt: 1, failure: true})
	deliver("failure from the gate", p, never(t), wanted{outcome: "gate_replay", attempt: 1, failure: true})

	b.put(t, business("f"), gate.NewToken(false, 1).Encode(), time.Minute)
	deliver("in flight", business("f"), never(t), wanted{outcome: "in_flight", status: codes.Error})

	b.pg.Arm(wire.Rule{Match: wire.Commit(), Action: wire.CutAfter})
	deliver("in doubt", business("d"), writes("d"), wanted{outcome: "executed", attempt: 1})
	require.Equal(t, []string{"effectonce.commit_in_doubt"}, b.events(t))

	deliver("derived", derived("t", 1), writes("t"), wanted{outcome: "executed", attempt: 1})
}

// TestSpansOfABreaker: who saw it open and close.
func TestSpansOfABreaker(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *options) { o.gate = probesAtOnce })
	tracer := trace.NewTracerProvider(trace.WithSpanProcessor(b.recorder)).Tracer("test")
	enter := func() error {
		ctx, span := tracer.Start(t.Context(), "caller")
		defer span.End()
		_, err := b.gate.Enter(ctx, "a", gate.NewToken(false, 1), time.Minute)
		return err
	}
	b.resp.Down()
	b.resp.Cut()
	require.Error(t, enter())
	require.Equal(t, []string{"effectonce.breaker_opened"}, b.events(t))
	require.NoError(t, b.resp.Heal())
	for enter() != nil {
		require.Empty(t, b.events(t))
	}
	require.Equal(t, []string{"effectonce.breaker_closed"}, b.events(t))
	require.NoError(t, enter())
	require.Empty(t, b.events(t))
}

// TestNothingShowsAPayload: neither spans nor errors, nor values printed under
// any verb, hold an input's or a result's text.
func TestNothingShowsAPayload(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const secret = "hush-hush"
	ctx := t.Context()
	_, _ = b.runner.Execute(ctx, business("a"), func(context.Context) (ledger.Outcome, error) {
		return ledger.Outcome{}, errors.New(secret)
	})
	b.settle(t)
	r, err := b.runner.Execute(ctx, business("a"), func(context.Context) (ledger.Outcome, error) {
		return outcome(secret), nil
	})
	require.NoError(t, err)
	b.settle(t)
	r2 := b.runs(t, business("a"), never(t), ledger.GateReplay)
	require.Equal(t, r.Outcome, r2.Outcome)
	mismatched := business("a")
	mismatched.Fingerprint[0]++
	_, err = b.runner.Execute(ctx, mismatched, never(t))
	_, entry, _ := b.stands(t, business("a"))
	answer := gate.Answer{Entry: entry}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		for _, value := range []any{r, &r, *entry, entry, answer, err} {
			text := fmt.Sprintf(verb, value)
			assert.NotContains(t, text, secret)
			assert.NotContains(t, text, fmt.Sprintf("%x", secret))
		}
	}
	for _, span := range b.recorder.Ended() {
		text := fmt.Sprint(span.Name(), span.Attributes(), span.Status(), span.Events())
		assert.NotContains(t, text, secret)
	}
}
