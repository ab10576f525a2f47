package ledger

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/effectonce/effectonce/internal/clock"
)

// MaxPrune bounds the rows of one call of [Store.Prune].
const MaxPrune = 1_000_000

// pruning is where the store's passes over its two tables have come to.
type pruning struct {
	mu      sync.Mutex
	started bool
	passes  [2]pass // the platform's, the tenants'
	turn    int     // whose turn it is to be first
}

// pass is one table's.
type pass struct {
	mark PruneMark
	open bool // begun, and not come to its end yet
	size int
}

// Prune deletes at most limit expired rows, the oldest first, with their
// payloads, in batches of Config.PruneBatch rows, each in a transaction of its
// own; with Config.Tenants of both tables. It returns how many are surely gone;
// that holds along with an error too. Fewer than the limit: nothing was left
// but what others had locked. A call resumes where the last one ended.
//
// Never deleted are rows that have not expired and rows in process; see
// [Store.PruneBatch]. The limit is 1 to [MaxPrune].
func (s *Store) Prune(ctx context.Context, limit int) (int, error) {
	if limit < 1 || limit > MaxPrune {
		return 0, NewError(CodeInvalid, fmt.Sprintf("prune: the limit is %d: use 1 to %d", limit, MaxPrune), nil)
	}
	rows := 0
	for _, tenants := range s.turns() {
		if rows == limit {
			break
		}
		n, err := s.prune(ctx, tenants, limit-rows)
		rows += n
		if err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// turns lists the tables, each call another one first: a limit that one of them
// uses up leaves the other its turn.
func (s *Store) turns() []bool {
	if !s.config.Tenants {
		return []bool{false}
	}
	s.pruning.mu.Lock()
	defer s.pruning.mu.Unlock()
	s.pruning.turn = 1 - s.pruning.turn
	first := s.pruning.turn == 0
	return []bool{first, !first}
}

// prune goes on with the table's pass; no limit: to its end. A pass that was
// begun by an earlier call is followed by another, for what that call's place
// has left behind.
func (s *Store) prune(ctx context.Context, tenants bool, limit int) (rows int, err error) {
	table := &s.pruning.passes[0]
	if tenants {
		table = &s.pruning.passes[1]
	}
	s.pruning.mu.Lock()
	p := *table
	s.pruning.mu.Unlock()
	for resumed := p.open; ; resumed = false {
		if !resumed {
			if p.mark, err = s.Behind(ctx, tenants, p.mark); err != nil {
				return rows, err
			}
		}
		sweep := Sweep{Range: PruneRange{Tenants: tenants, From: p.mark.From}, Size: p.size}
		if limit > 0 {
			sweep.Limit = limit - rows
		}
		var swept Swept
		swept, err = s.Sweep(ctx, sweep, nil)
		rows += swept.Rows
		p.mark.From, p.size, p.open = swept.Rest.From, swept.Size, !swept.Done
		s.pruning.mu.Lock()
		*table = p
		s.pruning.mu.Unlock()
		if err != nil || !resumed || limit > 0 && rows >= limit {
			return rows, err
		}
	}
}

// Start begins the store's own pruner, for programs without Temporal: a pass
// over all that has expired at once and then every Config.PruneInterval, in the
// background, a connection for each batch. Any number of stores may do so on one
// ledger. A failing pass is logged and tried again less and less often. Close
// ends the pruner; Done waits for it. The context bounds the call alone, and a
// second call does nothing.
func (s *Store) Start(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("ledger: start: %w", err)
	}
	if err := s.enter(); err != nil {
		return err
	}
	s.pruning.mu.Lock()
	started := s.pruning.started
	s.pruning.started = true
	s.pruning.mu.Unlock()
	if started {
		s.active.Done()
		return nil
	}
	go func() {
		defer s.active.Done()
		s.keepPruning(s.closing)
	}()
	return nil
}

const slowest = 8 // intervals between two passes while they fail

func (s *Store) keepPruning(ctx context.Context) {
	for failures := 0; ; {
		if err := s.passOver(ctx); ctx.Err() != nil {
			return
		} else if err != nil {
			failures++
			s.config.Logger.WarnContext(ctx, "purge failed: expired rows stay for now", "failures", failures, "error", err)
		} else {
			failures = 0
		}
		if clock.Wait(ctx, clock.Backoff(failures, s.config.PruneInterval, slowest*s.config.PruneInterval)) != nil {
			return
		}
	}
}

// passOver brings a pass over each table to its end.
func (s *Store) passOver(ctx context.Context) error {
	for _, tenants := range s.turns() {
		if err := s.Kept(ctx, tenants); err != nil {
			return err
		}
		if _, err := s.prune(ctx, tenants, 0); err != nil {
			return err
		}
	}
	return nil
}

// Kept measures how many rows the ledger keeps for its owners, by PostgreSQL's
// statistics, without reading one: the platform's,
// or the ten tenants' that keep the most. The purge never deletes unexpired
// rows to make room: an alarm on this figure is for a person.
func (s *Store) Kept(ctx context.Context, tenants bool) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.active.Done()
	conn, err := s.acquire(ctx)
	if err != nil {
		return unavailable("measure", err)
	}
	defer s.giveBack(ctx, conn.Conn)
	bounded, cancel := context.WithTimeout(ctx, networkTime)
	defer cancel()
	table := s.table(tenants)
	rows, err := conn.Query(bounded, table.kept, s.config.Schema, table.table+"_keys")
	if err != nil {
		return unavailable("measure", err)
	}
	var (
		owner string
		n     float64
	)
	_, err = pgx.ForEachRow(rows, []any{&owner, &n}, func() error {
		s.meters.keeps(ctx, owner, n)
		return nil
	})
	if err != nil {
		return unavailable("measure", err)
	}
	return nil
}
