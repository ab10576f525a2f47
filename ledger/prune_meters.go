package ledger

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/effectonce/effectonce/internal/telemetry"
)

// meters are the clean-up's metrics.
type meters struct {
	rows     metric.Int64Counter
	duration metric.Float64Histogram
	age      metric.Float64Gauge
	kept     metric.Float64Gauge
}

func newMeters(provider metric.MeterProvider) (m meters, err error) {
	meter := provider.Meter(telemetry.Scope)
	if m.rows, err = meter.Int64Counter("idempotency_cleanup_rows_total",
		metric.WithDescription("Expired rows that were deleted.")); err != nil {
		return meters{}, err
	}
	if m.duration, err = meter.Float64Histogram("idempotency_cleanup_batch_duration_seconds", metric.WithUnit("s"),
		metric.WithDescription("How long one batch took, its commit included."),
		metric.WithExplicitBucketBoundaries(.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10)); err != nil {
		return meters{}, err
	}
	if m.age, err = meter.Float64Gauge("idempotency_oldest_expired_age_seconds", metric.WithUnit("s"),
		metric.WithDescription("How far behind the purge is: the age of the oldest expired row that may be left; 0 when none is.")); err != nil {
		return meters{}, err
	}
	m.kept, err = meter.Float64Gauge("idempotency_kept_rows",
		metric.WithDescription("Rows that the ledger keeps for an owner, by PostgreSQL's statistics."))
	return m, err
}

func tableAttribute(t *statements) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("table", t.table+"_keys"))
}

// batch counts what one batch has done.
func (m *meters) batch(ctx context.Context, t *statements, rows int, took time.Duration) {
	m.rows.Add(ctx, int64(rows), tableAttribute(t))
	m.duration.Record(ctx, took.Seconds(), tableAttribute(t))
}

// behind says how far behind the purge of a table is.
func (m *meters) behind(ctx context.Context, t *statements, age time.Duration) {
	m.age.Record(ctx, max(age, 0).Seconds(), tableAttribute(t))
}

// keeps says how many rows are kept for an owner.
func (m *meters) keeps(ctx context.Context, owner string, rows float64) {
	m.kept.Record(ctx, rows, metric.WithAttributes(attribute.String("owner", owner)))
}

// keptStatement reads what PostgreSQL's statistics say of the rows that owners
// keep, and no row: $1 the schema, $2 the table.
func keptStatement(tenant bool) string {
	if !tenant {
		return `SELECT 'platform', c.reltuples::float8 FROM pg_class c
 WHERE c.oid = to_regclass(format('%I.%I', $1::text, $2::text)) AND c.reltuples >= 0`
	}
	return `SELECT 'tenant:' || m.tenant, m.part::float8 * c.reltuples::float8
  FROM pg_class c JOIN pg_stats s ON s.schemaname = $1::text AND s.tablename = $2::text AND s.attname = 'tenant_id',
       unnest(s.most_common_vals::text::bigint[], s.most_common_freqs) AS m (tenant, part)
 WHERE c.oid = to_regclass(format('%I.%I', $1::text, $2::text)) AND c.reltuples >= 0
 ORDER BY 2 DESC LIMIT 10` // tenants: a gauge for each of thousands helps nobody
}
