package ledger_test

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/effectonce/effectonce/ledger"
)

// measured reads one metric's points by their one attribute.
func measured(t *testing.T, reader sdkmetric.Reader, name string) map[string]float64 {
	t.Helper()
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &data))
	points := map[string]float64{}
	value := func(set attribute.Set, v float64) {
		kv, _ := set.Get(0)
		points[kv.Value.AsString()] = v
	}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != name {
				continue
			}
			switch d := m.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					value(p.Attributes, float64(p.Value))
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					value(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					value(p.Attributes, float64(p.Count))
				}
			}
		}
	}
	return points
}

func TestPruneIsMeasured(t *testing.T) {
	t.Parallel()
	reader := sdkmetric.NewManualReader()
	b := setup(t, func(c *ledger.Config) {
		c.PruneBatch, c.MeterProvider = 5, sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	})
	b.fill(t, 20, 2*time.Hour, ledger.Completed, false)
	b.fill(t, 10, -time.Hour, ledger.Completed, true)
	const table, tenants = "platform_idempotency_keys", "idempotency_keys"

	require.Equal(t, 10, b.prune(t, 10))
	require.InDelta(t, 10, measured(t, reader, "idempotency_cleanup_rows_total")[table], 0)
	require.InDelta(t, 2, measured(t, reader, "idempotency_cleanup_batch_duration_seconds")[table], 0)
	require.InDelta(t, 7200, measured(t, reader, "idempotency_oldest_expired_age_seconds")[table], 300)

	require.Equal(t, 10, b.prune(t, 100))
	require.InDelta(t, 20, measured(t, reader, "idempotency_cleanup_rows_total")[table], 0)
	require.Equal(t, map[string]float64{table: 0, tenants: 0}, measured(t, reader, "idempotency_oldest_expired_age_seconds"))

	b.exec(t, "ANALYZE idempotency_keys")
	b.exec(t, "ANALYZE platform_idempotency_keys")
	require.NoError(t, b.store.Kept(t.Context(), true))
	require.NoError(t, b.store.Kept(t.Context(), false))
	require.Equal(t, map[string]float64{"tenant:1": 10, "platform": 0}, measured(t, reader, "idempotency_kept_rows"))
}

// lines is a log that a test can wait for.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{}
}

func newLines() *lines { return &lines{more: make(chan struct{}, 1)} }

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(b)
}

func (l *lines) wait(t *testing.T, line string) {
	t.Helper()
	for {
		l.mu.Lock()
		found := strings.Contains(l.text.String(), line)
		l.mu.Unlock()
		if found {
			return
		}
		select {
		case <-l.more:
		case <-t.Context().Done():
			require.Fail(t, "never logged", line)
		}
	}
}
