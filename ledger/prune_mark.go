package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// PruneMark is how far the passes over one table have come. The next one
// resumes there, and doesn't read again what is left behind: abandoned leases,
// and rows that are deleted but that some old transaction can still see. Its
// zero value begins at the start.
type PruneMark struct {
	// From is where the next pass begins.
	From time.Time `json:"from"`
	// Full is when a pass began at the start, by PostgreSQL's clock.
	Full time.Time `json:"full"`
}

const (
	// fullEvery is how often a pass begins at the start whatever is left there.
	fullEvery = 5 * time.Minute
	// peekRows is how many of the rows before the mark are looked at before a pass.
	peekRows = "5000"
)

// Behind returns the mark with which a pass over the table begins. That is the
// start again, if the last time was a while ago, or if a row before the mark
// may go by now: one that was locked, or an abandoned lease that has come of
// age. One round trip.
func (s *Store) Behind(ctx context.Context, tenants bool, mark PruneMark) (PruneMark, error) {
	if err := s.enter(); err != nil {
		return mark, err
	}
	defer s.active.Done()
	var (
		again bool
		now   time.Time
	)
	err := s.maintain(ctx, s.config.PruneTimeout, func(row pgx.Row) error { return row.Scan(&again, &now) },
		s.table(tenants).behind, mark.From, mark.Full, fullEvery.Milliseconds(), s.config.LongestRetention.Milliseconds())
	switch {
	case err != nil && ctx.Err() != nil:
		return mark, fmt.Errorf("ledger: prune: %w", ctx.Err())
	case err != nil:
		return mark, unavailable("prune", err)
	}
	if again {
		return PruneMark{Full: now}, nil
	}
	return mark, nil
}

// behindStatement: $1 from, $2 when the last pass began at the start, $3 how
// often one does and $4 the longest retention in ms.
func behindStatement(table string) string {
	return `SELECT now() - $2::timestamptz > $3::bigint * interval '1 millisecond' OR EXISTS (
    SELECT FROM (SELECT status, expires_at FROM ` + table + `_keys
                  WHERE expires_at < $1::timestamptz ORDER BY expires_at LIMIT ` + peekRows + `) k
     WHERE ` + due + `), now()`
}
