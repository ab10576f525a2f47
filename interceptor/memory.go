package interceptor

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.temporal.io/sdk/activity"
)

// memory reports retentions that are shorter than Temporal may come back: what
// was forgotten runs again.
type memory struct {
	late metric.Int64Counter
	said sync.Map // activity types whose retention was reported
}

func newMemory(meter metric.Meter) (*memory, error) {
	late, err := meter.Int64Counter("effectonce.late_attempts",
		metric.WithDescription("Attempts that came later than the ledger can remember, and whose key had no row."))
	return &memory{late: late}, err
}

// tooShort says once for each activity type that retries may come later than
// the retention.
func (m *memory) tooShort(ctx context.Context, info activity.Info, retention time.Duration) {
	if info.ScheduleToCloseTimeout <= retention {
		return
	}
	if _, before := m.said.LoadOrStore(info.ActivityType.Name, true); before {
		return
	}
	activity.GetLogger(ctx).Warn("retention too short: Temporal may retry this activity when the ledger has forgotten it; raise Policy.Retention over ScheduleToCloseTimeout",
		"retention", retention, "schedule_to_close", info.ScheduleToCloseTimeout)
}

func (m *memory) cameLate(ctx context.Context, info activity.Info, retention time.Duration, ran bool) {
	m.late.Add(ctx, 1, metric.WithAttributes(
		attribute.String("operation", info.ActivityType.Name), attribute.Bool("refused", !ran)))
	activity.GetLogger(ctx).Warn("late attempt: an earlier one may have committed and been forgotten; look at the effect by hand",
		"scheduled", info.ScheduledTime, "retention", retention, "refused", !ran)
}
