package ledger

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/effectonce/effectonce/internal/clock"
)

// Sweep says what [Store.Sweep] is to delete.
type Sweep struct {
	// Range of rows. Default: all that the platform's table has expired.
	Range PruneRange
	// Size is the first batch's number of rows. Default, and at most:
	// Config.PruneBatch. A batch that runs into Config.PruneTimeout makes the next
	// ones smaller; they grow again while they are quick.
	Size int
	// Limit bounds the rows deleted. Default: none.
	Limit int
	// Beside says that another sweep of the same table works on older rows, and
	// tells how far behind the purge is.
	Beside bool
}

// Swept is how far a sweep has come.
type Swept struct {
	// Rows were deleted, surely.
	Rows int `json:"rows"`
	// Rest is what is left of the range.
	Rest PruneRange `json:"rest"`
	// Done says that nothing is left but what others had locked.
	Done bool `json:"done,omitempty"`
	// Size is the next batch's.
	Size int `json:"size"`
	// Shrunk counts the batches that ran into their time.
	Shrunk int `json:"shrunk,omitempty"`
}

// Sweep deletes the range's rows, batch by batch as [Store.PruneBatch] does it,
// until it is done, the limit is reached, report says false or an error comes;
// report is called after each batch, and may be nil. Between two batches it
// holds no connection. What it returns along with an error is true too: what
// was deleted before, and where to resume.
func (s *Store) Sweep(ctx context.Context, sweep Sweep, report func(Swept) bool) (Swept, error) {
	p := newPace(sweep.Size, s.config)
	swept := Swept{Rest: sweep.Range, Size: p.size}
	if err := s.enter(); err != nil {
		return swept, err
	}
	defer s.active.Done()
	table := s.table(sweep.Range.Tenants)
	for {
		r := swept.Rest
		r.Until = p.bound(swept.Rest, s.config.LongestRetention)
		limit := p.size
		if sweep.Limit > 0 {
			limit = min(limit, sweep.Limit-swept.Rows)
		}
		began := clock.Now()
		b, err := s.pruneBatch(ctx, r, limit, s.config.PruneTimeout)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return swept, fmt.Errorf("ledger: sweep: %w", ctx.Err())
		case outOfTime(err) && p.shrink(swept.Rest, s.config.LongestRetention):
			swept.Size = p.size
			swept.Shrunk++
			if !call(report, swept) {
				return swept, nil
			}
			continue
		default:
			if !sweep.Beside && !swept.Rest.From.IsZero() {
				s.meters.behind(ctx, table, clock.Since(swept.Rest.From))
			}
			return swept, unavailable("sweep", err)
		}
		p.grow(clock.Since(began))
		swept.Size = p.size
		swept.Rows += b.Rows
		swept.Rest.From = b.Rest.From
		whole := r.Until.IsZero() || r.Until.Equal(swept.Rest.Until) || b.Rest.Until.Before(r.Until)
		if whole {
			swept.Rest.Until = b.Rest.Until
		}
		swept.Done = b.Done && whole
		if !sweep.Beside {
			s.meters.behind(ctx, table, age(b, swept.Done))
		}
		if !call(report, swept) || swept.Done || sweep.Limit > 0 && swept.Rows >= sweep.Limit {
			return swept, nil
		}
	}
}

// age is that of the oldest row that may be left.
func age(b Pruned, done bool) time.Duration {
	if a := b.Now.Sub(b.Rest.From); !done || a > PruneMargin {
		return a
	}
	return 0
}

func call(report func(Swept) bool, swept Swept) bool { return report == nil || report(swept) }

// outOfTime reports whether less work would have been done in time.
func outOfTime(err error) bool {
	state := sqlState(err)
	return state == sqlQueryCanceled || state == sqlLockNotAvailable ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// pace is how much a batch takes on: rows to delete, and, once one has run into
// its time, of which stretch. The first alone bounds nothing where there is much
// to pass over before the first row that may go.
type pace struct {
	size, most int
	quick      time.Duration // a batch that took less lets the next one be larger
	window     time.Duration // 0: the whole range
}

const (
	leastSize   = 10
	leastWindow = time.Second
)

func newPace(size int, c Config) *pace {
	if size < 1 || size > c.PruneBatch {
		size = c.PruneBatch
	}
	return &pace{size: size, most: c.PruneBatch, quick: c.PruneTimeout / 2}
}

// shrink halves what the next batch takes on; false when it is least already.
func (p *pace) shrink(rest PruneRange, longest time.Duration) bool {
	least := min(leastSize, p.most)
	if p.size == least && p.window != 0 && p.window <= leastWindow {
		return false
	}
	p.size = max(p.size/2, least)
	if p.window == 0 {
		p.window = end(rest).Sub(start(rest, longest))
	}
	p.window = max(p.window/2, leastWindow)
	return true
}

// grow lets the next batch be larger by a quarter, of a stretch twice as long.
func (p *pace) grow(took time.Duration) {
	if took > p.quick {
		return
	}
	p.size = min(p.size+max(p.size/4, 1), p.most)
	if p.window *= 2; p.window > maxWindow {
		p.window = 0
	}
}

// maxWindow is as good as the whole range.
const maxWindow = 365 * 24 * time.Hour

// bound is where the next batch's stretch ends. The worker's clock is good
// enough to cut a range into pieces.
func (p *pace) bound(rest PruneRange, longest time.Duration) time.Time {
	if p.window == 0 {
		return rest.Until
	}
	bound := start(rest, longest)
	if !rest.From.IsZero() {
		bound = bound.Add(p.window)
	}
	bound = bound.Truncate(time.Microsecond) // as PostgreSQL keeps it
	if !rest.Until.IsZero() && bound.After(rest.Until) {
		return rest.Until
	}
	return bound
}

// start is where a range may be cut first: what is older than that is seldom.
func start(rest PruneRange, longest time.Duration) time.Time {
	if rest.From.IsZero() {
		return end(rest).Add(-2 * longest)
	}
	return rest.From
}

func end(rest PruneRange) time.Time {
	if rest.Until.IsZero() {
		return clock.Now()
	}
	return rest.Until
}
