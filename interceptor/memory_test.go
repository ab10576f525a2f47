package interceptor_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/internal/ledgertest"
)

// TestMarkers: the ledger keeps the fact alone.
func TestMarkers(t *testing.T) {
	t.Parallel()
	marker := interceptor.Policy{
		Result: interceptor.KeepMarker,
		Key:    interceptor.KeyOf(func(s string) string { return s }),
	}
	derived := interceptor.Policy{Result: interceptor.KeepMarker}
	silent := func(_ context.Context, n string) (string, error) { return "secret of " + n, nil }
	secret := func(ctx context.Context, n string) (string, error) {
		return "secret of " + n, ledgertest.Effect(ctx, n)
	}
	void := func(ctx context.Context, n string) error { return ledgertest.Effect(ctx, n) }
	for n, with := range map[string]change{
		"with the gate": func(*bundle, *client.Options) {},
		"without":       func(b *bundle, _ *client.Options) { b.options.Gate = nil },
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			b := setup(t, with, policies(map[string]interceptor.Policy{
				"secret": marker, "silent": marker, "begun": {Result: marker.Result, Key: marker.Key, Begin: 1},
				"leased": {Result: marker.Result, Key: marker.Key, Mode: interceptor.Leased}, "void": marker, "derived": derived,
			}))
			b.worker(t, func(w worker.Worker) {
				registerOne(w)
				for n, f := range map[string]any{"secret": secret, "silent": silent, "begun": secret, "leased": silent, "void": void, "derived": secret} {
					w.RegisterActivityWithOptions(f, name(n))
				}
			})
			for _, activity := range []string{"secret", "silent", "begun", "leased"} {
				got, err := b.call(t, workflow.ActivityOptions{}, activity, activity)
				require.NoError(t, err)
				require.Equal(t, "secret of "+activity, got)
				b.settle(t)
				got, err = b.call(t, workflow.ActivityOptions{}, activity, activity)
				if b.options.Gate != nil {
					require.NoError(t, err)
					require.Equal(t, "secret of "+activity, got)
					continue
				}
				e := b.appError(t, err)
				require.Equal(t, interceptor.ErrTypeAlreadyCommitted, e.Type())
				require.True(t, e.NonRetryable())
			}
			for range 2 {
				got, err := b.call(t, workflow.ActivityOptions{}, "void", "void")
				require.NoError(t, err)
				require.Nil(t, got)
			}
			require.Equal(t, 1, b.effects(t, "secret"))
			require.Equal(t, 1, b.effects(t, "begun"))
			require.Equal(t, 1, b.effects(t, "void"))
			var kept int
			require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT count(*) FROM platform_idempotency_keys WHERE outcome ? 'd'").Scan(&kept))
			require.Zero(t, kept)
			_, err := b.call(t, workflow.ActivityOptions{}, "derived", "x")
			require.NoError(t, err)
			require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT count(*) FROM platform_idempotency_keys WHERE outcome ? 'd'").Scan(&kept))
			require.Equal(t, 1, kept, "a derived key's retry needs its result")
		})
	}
}

// settle waits until what was executed is at the gate.
func (b *bundle) settle(t *testing.T) {
	t.Helper()
	if b.options.Gate == nil {
		return
	}
	c, err := valkey.NewClient(b.options.Gate.Valkey)
	require.NoError(t, err)
	defer c.Close()
	require.Eventually(t, func() bool {
		keys, err := c.Do(t.Context(), c.B().Keys().Pattern(b.prefix+"*").Build()).AsStrSlice()
		require.NoError(t, err)
		for _, key := range keys {
			held, err := c.Do(t.Context(), c.B().Get().Key(key).Build()).ToString()
			if err == nil && !strings.HasPrefix(held, "e") {
				return false
			}
		}
		return len(keys) > 0
	}, 20*time.Second, 10*time.Millisecond)
}

// TestLateAttempts: an attempt that comes when the ledger has forgotten.
func TestLateAttempts(t *testing.T) {
	t.Parallel()
	for n, c := range map[string]struct {
		late    interceptor.Late
		purged  bool
		effects int
		refused bool
	}{
		"reported":                {interceptor.LateReport, true, 2, false},
		"refused":                 {interceptor.LateRefuse, true, 1, true},
		"remembered all the same": {interceptor.LateRefuse, false, 1, false},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			reader, said := sdkmetric.NewManualReader(), &sayings{}
			forgets := func(ctx context.Context, b *bundle) {
				if c.purged {
					_, err := b.pool.Exec(ctx, "DELETE FROM platform_idempotency_keys")
					assert.NoError(t, err)
				}
			}
			b := setup(t, policies(map[string]interceptor.Policy{"does": {Retention: time.Second, Late: c.late}}), func(b *bundle, o *client.Options) {
				b.options.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
				o.Logger = said
				l := newLoses(1)
				l.then = func(ctx context.Context) { forgets(ctx, b) }
				o.Interceptors = append(o.Interceptors, &bothSides{loses: l})
			})
			b.worker(t, registerTransfer)
			got, err := b.call(t, workflow.ActivityOptions{
				ScheduleToCloseTimeout: time.Hour,
				RetryPolicy:            &temporal.RetryPolicy{InitialInterval: 1100 * time.Millisecond},
			}, "does", "a")
			require.Equal(t, c.effects, b.effects(t, "a"))
			if c.refused {
				e := b.appError(t, err)
				require.Equal(t, interceptor.ErrTypeExpired, e.Type())
				require.True(t, e.NonRetryable())
			} else {
				require.NoError(t, err)
				require.Equal(t, "did a", got)
			}
			last := b.spans.GetSpans()[len(b.spans.GetSpans())-1]
			require.Equal(t, gate.SpanName, last.Name)
			require.Equal(t, map[bool]string{true: "true"}[c.effects == 2], attr(last, gate.AttrLate))
			require.Equal(t, c.purged, said.has("late attempt"))
			require.Equal(t, 1, said.count("retention too short"))
			require.Equal(t, c.purged, lateAttempts(t, reader, c.refused) == 1)
		})
	}
}

func lateAttempts(t *testing.T, reader sdkmetric.Reader, refused bool) (n int64) {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name != "effectonce.late_attempts" {
				continue
			}
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				v, _ := p.Attributes.Value("refused")
				require.Equal(t, refused, v.AsBool())
				n += p.Value
			}
		}
	}
	return n
}

// sayings keeps what the SDK's logger is told.
type sayings struct {
	quiet
	mu  sync.Mutex
	all []string
}

func (s *sayings) Info(text string, _ ...any) { s.say(text) }
func (s *sayings) Warn(text string, _ ...any) { s.say(text) }

func (s *sayings) say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, text)
}

func (s *sayings) count(begins string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range s.all {
		if strings.HasPrefix(text, begins) {
			n++
		}
	}
	return n
}

func (s *sayings) has(begins string) bool { return s.count(begins) > 0 }
