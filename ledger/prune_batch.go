package ledger

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/effectonce/effectonce/internal/clock"
)

const (
	// MaxPruneBatch bounds the rows of one batch, which is one transaction.
	MaxPruneBatch = 10_000
	// PruneMargin is how long after its end a row is deleted at the earliest. By
	// then the gate has nothing of it: its entries end sooner than their rows, by
	// the same margin.
	PruneMargin = 2 * time.Second

	// networkTime is what a batch may take over its statement's time.
	networkTime = 5 * time.Second
)

// PruneRange is a stretch of one table's rows, by when they expired.
type PruneRange struct {
	// Tenants says which table: the tenants' keys, or the platform's.
	Tenants bool `json:"tenants,omitempty"`
	// From leaves out the rows that expired before. Default: none.
	From time.Time `json:"from"`
	// Until leaves out the rows that expired after. Default, and at most: what
	// expired [PruneMargin] ago, by PostgreSQL's clock.
	Until time.Time `json:"until"`
}

// Pruned is what one batch has done.
type Pruned struct {
	// Rows were deleted: 0 unless the commit is sure.
	Rows int
	// Oldest is when the first of them expired; the zero time without one.
	Oldest time.Time
	// Rest is what is left of the range. Its Until is the range's, or the moment
	// that the batch took for its end.
	Rest PruneRange
	// Done says that nothing is left in the range but what others had locked.
	Done bool
	// Now is PostgreSQL's time.
	Now time.Time
}

// PruneBatch deletes at most limit rows of the range, the oldest first, with
// their payloads, in one transaction and one round trip. It passes over rows
// that another transaction has locked, and never touches a row that has not
// expired, nor one in process, unless its lease was over longer ago than
// Config.LongestRetention. Any number of batches may run at once. The limit is 1
// to [MaxPruneBatch], the timeout at least 1 ms.
//
// The next batch resumes at Rest, so that it doesn't read again what this one
// has deleted, which stays in the index while any transaction can see it.
func (s *Store) PruneBatch(ctx context.Context, r PruneRange, limit int, timeout time.Duration) (Pruned, error) {
	if limit < 1 || limit > MaxPruneBatch {
		return Pruned{}, NewError(CodeInvalid, fmt.Sprintf("prune: the limit is %d: use 1 to %d", limit, MaxPruneBatch), nil)
	}
	if timeout < time.Millisecond {
		return Pruned{}, NewError(CodeInvalid, fmt.Sprintf("prune: the timeout is %s: use at least 1ms", timeout), nil)
	}
	if err := s.enter(); err != nil {
		return Pruned{}, err
	}
	defer s.active.Done()
	p, err := s.pruneBatch(ctx, r, limit, timeout)
	if err != nil {
		if ctx.Err() != nil {
			return Pruned{}, fmt.Errorf("ledger: prune: %w", ctx.Err())
		}
		return Pruned{}, unavailable("prune", err)
	}
	return p, nil
}

func (s *Store) pruneBatch(ctx context.Context, r PruneRange, limit int, timeout time.Duration) (p Pruned, err error) {
	var (
		seen         int
		oldest, last *time.Time
	)
	began := clock.Now()
	err = s.maintain(ctx, timeout, func(row pgx.Row) error {
		return row.Scan(&p.Rows, &seen, &oldest, &last, &p.Rest.Until, &p.Now)
	}, s.table(r.Tenants).prune, r.From, orNull(r.Until), PruneMargin.Milliseconds(), s.config.LongestRetention.Milliseconds(), limit)
	if err != nil {
		return Pruned{}, err
	}
	p.Rest.Tenants, p.Rest.From, p.Done = r.Tenants, r.From, seen < limit
	if p.Done {
		p.Rest.From = later(r.From, p.Rest.Until)
	} else if last != nil {
		p.Rest.From = *last
	}
	if oldest != nil {
		p.Oldest = *oldest
	}
	s.meters.batch(ctx, s.table(r.Tenants), p.Rows, clock.Since(began))
	return p, nil
}

// maintain runs one statement with [pruneSettings], in one round trip. It returns
// nil when its transaction has surely committed.
func (s *Store) maintain(ctx context.Context, timeout time.Duration, scan func(pgx.Row) error, sql string, args ...any) error {
	conn, err := s.acquire(ctx)
	if err != nil {
		return err
	}
	defer s.giveBack(ctx, conn.Conn)
	bounded, cancel := context.WithTimeout(ctx, timeout+networkTime)
	defer cancel()
	batch := &pgx.Batch{}
	batch.Queue(beginStatement(pgx.ReadCommitted))
	batch.Queue(pruneSettings, strconv.FormatInt(timeout.Milliseconds(), 10))
	batch.Queue(sql, args...)
	batch.Queue("commit")
	return pipeline(bounded, conn.Conn, batch, func(results pgx.BatchResults) error {
		for range 2 {
			if _, err := results.Exec(); err != nil {
				return err
			}
		}
		if err := scan(results.QueryRow()); err != nil {
			return err
		}
		tag, err := results.Exec()
		if err == nil && tag.String() != "COMMIT" {
			err = fmt.Errorf("the transaction ended with %s", tag)
		}
		return err
	})
}

func (s *Store) table(tenants bool) *statements {
	if tenants {
		return &s.tenant
	}
	return &s.platform
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// pruneSettings hold for the batch's transaction alone. The plan is to be the
// index scan that stops at the limit, whatever the statistics say: they are
// never younger than the rows that have just expired.
const pruneSettings = `SELECT set_config('statement_timeout', $1::text, true), set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true), set_config('enable_sort', 'off', true), set_config('jit', 'off', true)`

// due says which of the rows before the end may go: finished ones, and claims
// that were abandoned by their leases $4 ms ago.
const due = `(k.status <> 'processing' OR k.expires_at <= now() - $4::bigint * interval '1 millisecond')`

// pruneStatement: $1 from, $2 until or null, $3 the margin and $4 the longest
// retention in ms, $5 the limit. Rows are locked in the index's order, and each
// is checked again when it is locked: a row that was taken over meanwhile is
// left alone. A locked row is deleted by its place.
func pruneStatement(table string) string {
	return `WITH bound AS MATERIALIZED (
    SELECT least($2::timestamptz, now() - $3::bigint * interval '1 millisecond') AS until
), batch AS MATERIALIZED (
    SELECT k.ctid AS place, k.id, k.expires_at
      FROM ` + table + `_keys k
     WHERE k.expires_at >= $1::timestamptz
       AND k.expires_at <= least($2::timestamptz, now() - $3::bigint * interval '1 millisecond')
       AND ` + due + `
     ORDER BY k.expires_at
     LIMIT $5::integer
       FOR UPDATE SKIP LOCKED
), payloads AS (
    DELETE FROM ` + table + `_payloads WHERE id = ANY (ARRAY(SELECT id FROM batch))
), gone AS (
    DELETE FROM ` + table + `_keys WHERE ctid = ANY (ARRAY(SELECT place FROM batch)) RETURNING 1
)
SELECT (SELECT count(*)::integer FROM gone), count(b.id)::integer, min(b.expires_at), max(b.expires_at), bound.until, now()
  FROM bound LEFT JOIN batch b ON true
 GROUP BY bound.until`
}
