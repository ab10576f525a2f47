package gate_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/ledger"
)

// measured reads all points of counters and gauges, and the counts of
// histograms, by their names and attributes: name{key=value,…}.
func measured(t *testing.T, reader sdkmetric.Reader) map[string]float64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &data))
	points := map[string]float64{}
	put := func(name string, set attribute.Set, value float64) {
		var pairs []string
		for _, kv := range set.ToSlice() {
			pairs = append(pairs, fmt.Sprintf("%s=%s", kv.Key, kv.Value.Emit()))
		}
		points[name+"{"+strings.Join(pairs, ",")+"}"] = value
	}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					put(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					put(m.Name, p.Attributes, float64(p.Value))
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					put(m.Name, p.Attributes, float64(p.Count))
				}
			}
		}
	}
	return points
}

// TestMetrics: each execution is counted once by how it was answered, and timed.
func TestMetrics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := business("a")
	_, err := b.runner.Execute(t.Context(), a, fails(errBody))
	require.ErrorIs(t, err, errBody)
	b.settle(t)
	b.runs(t, a, writes("a"), ledger.Executed)
	b.settle(t)
	b.runs(t, a, never(t), ledger.GateReplay)
	b.remove(t, a)
	b.runs(t, a, never(t), ledger.LedgerReplay)
	b.settle(t)
	mismatched := a
	mismatched.Fingerprint[0]++
	_, err = b.runner.Execute(t.Context(), mismatched, never(t))
	require.Equal(t, ledger.CodeMismatch, ledger.CodeOf(err))
	b.put(t, business("f"), gate.NewToken(false, 1).Encode(), time.Minute)
	_, err = b.runner.Execute(t.Context(), business("f"), never(t))
	require.Equal(t, ledger.CodeInFlight, ledger.CodeOf(err))
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err = b.runner.Execute(gone, business("g"), never(t))
	require.ErrorIs(t, err, context.Canceled)
	require.PanicsWithValue(t, "boom", func() {
		_, _ = b.runner.Execute(t.Context(), business("p"), func(context.Context) (ledger.Outcome, error) { panic("boom") })
	})
	leased := business("l")
	leased.Request.Begin, leased.Request.Lease = ledger.BeginLeased, time.Minute
	b.runs(t, leased, func(context.Context) (ledger.Outcome, error) { return outcome("sent"), nil }, ledger.Executed)
	b.pg.Arm(wire.Rule{Match: wire.Commit(), Action: wire.CutAfter})
	b.runs(t, business("d"), writes("d"), ledger.Executed)
	b.settle(t)

	points := measured(t, b.reader)
	outcomes := map[string]float64{
		"failed": 1, "executed": 2, "gate_replay": 1, "ledger_replay": 1, "mismatch": 1, "in_flight": 1, "canceled": 1, "panicked": 1,
	}
	for outcome, n := range outcomes {
		require.InDelta(t, n, points["effectonce.executions{mode=transactional,operation=test,outcome="+outcome+"}"], 0, outcome)
		require.InDelta(t, n, points["effectonce.execution.duration{mode=transactional,outcome="+outcome+"}"], 0, outcome)
	}
	require.InDelta(t, 1, points["effectonce.executions{mode=leased,operation=test,outcome=executed}"], 0)
	require.InDelta(t, 1, points["effectonce.takeovers{operation=test}"], 0)
	require.InDelta(t, 1, points["effectonce.commits_in_doubt{fate=committed,operation=test}"], 0)
	require.InDelta(t, 0, points["effectonce.executions.active{}"], 0)
	require.InDelta(t, 0, points["effectonce.gate.breaker.state{}"], 0)
	require.InDelta(t, 2, points["effectonce.gate.duration{answer=entry}"], 0)
	require.InDelta(t, 1, points["effectonce.gate.duration{answer=token}"], 0)
	require.InDelta(t, 6, points["effectonce.gate.duration{answer=set}"], 0)
	for name := range points {
		require.NotContains(t, name, "effectonce.executions.degraded")
		require.NotContains(t, name, "effectonce.gate.dropped")
	}
}

// TestMetricsOfWaiting: who is under way and who waits, at the gate or at the
// ledger, can be seen meanwhile.
func TestMetricsOfWaiting(t *testing.T) {
	t.Parallel()
	for name, past := range map[string]bool{"at the gate": false, "at the ledger": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			if past {
				b.runner = b.newRunner(t, nil)
			}
			running, goOn, body := holding(writes("a"))
			release := sync.OnceFunc(func() { close(goOn) })
			defer release()
			req := business("a")
			req.Begin = ledger.BeginAtOnce
			first := b.beside(t.Context(), req, body)
			<-running
			second := b.beside(t.Context(), patient(req), never(t))
			require.Eventually(t, func() bool { return measured(t, b.reader)["effectonce.executions.waiting{}"] == 1 },
				time.Minute, time.Millisecond)
			require.InDelta(t, 2, measured(t, b.reader)["effectonce.executions.active{}"], 0)
			release()
			require.NoError(t, (<-first).err)
			require.NoError(t, (<-second).err)
			require.InDelta(t, 0, measured(t, b.reader)["effectonce.executions.waiting{}"], 0)
			require.InDelta(t, 0, measured(t, b.reader)["effectonce.executions.active{}"], 0)
		})
	}
}

// TestMetricsOfTheBreaker: while Valkey is away each execution counts as
// degraded, what isn't sent as dropped; a closed gate is watched no longer.
func TestMetricsOfTheBreaker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.resp.Down()
	b.resp.Cut()
	b.runs(t, business("a"), writes("a"), ledger.Executed)
	b.runs(t, business("b"), writes("b"), ledger.Executed)
	points := measured(t, b.reader)
	require.InDelta(t, 2, points["effectonce.gate.breaker.state{}"], 0)
	require.InDelta(t, 1, points["effectonce.executions.degraded{reason=error}"], 0)
	require.InDelta(t, 1, points["effectonce.executions.degraded{reason=breaker_open}"], 0)
	require.InDelta(t, 1, points["effectonce.gate.duration{answer=error}"], 0)
	require.InDelta(t, float64(b.gate.Dropped()), points["effectonce.gate.dropped{}"], 0)
	require.Positive(t, b.gate.Dropped())
	require.Contains(t, points, "effectonce.gate.queue{}")

	require.NoError(t, b.gate.Close(t.Context()))
	require.NotContains(t, measured(t, b.reader), "effectonce.gate.breaker.state{}")
}
