package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Defaults of [Limits].
const (
	DefaultMaxConcurrent = 1000
	DefaultMaxInputBytes = 1 << 20
	DefaultTimeout       = time.Minute
)

// Limits say how much the store takes on, and what a request gets that doesn't
// say. The zero value of each field is its default.
type Limits struct {
	// MaxConcurrent bounds the executions at once in this process, replays and
	// those that wait included. One too many is refused with [CodeOverloaded].
	// Default 1,000; negative: no bound. The Temporal plugin sets none: there, a
	// worker's own slots are the bound, and a place is waited for.
	MaxConcurrent int
	// Quota bounds the rows that an owner keeps whose retention isn't over. A new
	// key beyond is refused with [CodeQuota] before its body; a replay isn't, and
	// needs no room. Executions at the same moment don't see each other: at most
	// that many rows more are kept. It costs one round trip more for each claim.
	// A body that never asks for its transaction has its row counted, and isn't
	// refused. Default 0: no bound.
	Quota int
	// MaxKeyBytes bounds a [ClientKey]. Default 256, 16 to 256.
	MaxKeyBytes int
	// MaxInputBytes bounds a typed operation's input as its fingerprint renders
	// it. Default 1 MiB.
	MaxInputBytes int
	// Timeout bounds an execution whose caller has no deadline. It is also by when
	// PostgreSQL ends the transaction of a process that has vanished. It doesn't
	// hold for leases. Default 1 min, at least 1 ms; negative: no bound.
	Timeout time.Duration
	// Wait is the default of [Request.Wait]. Default 5 s; negative: not at all.
	Wait time.Duration
	// Retention is the default of [Request.Retention]. Default 7 days, at least
	// 1 s.
	Retention time.Duration
}

func (l Limits) withDefaults() Limits {
	if l.MaxConcurrent == 0 {
		l.MaxConcurrent = DefaultMaxConcurrent
	}
	if l.MaxKeyBytes == 0 {
		l.MaxKeyBytes = MaxClientKeyBytes
	}
	if l.MaxInputBytes == 0 {
		l.MaxInputBytes = DefaultMaxInputBytes
	}
	if l.Timeout == 0 {
		l.Timeout = DefaultTimeout
	}
	if l.Wait == 0 {
		l.Wait = DefaultWait
	}
	if l.Retention == 0 {
		l.Retention = DefaultRetention
	}
	return l
}

func (l Limits) validate() error {
	var faults []error
	if l.Quota < 0 {
		faults = append(faults, fmt.Errorf("Limits.Quota is %d: use a positive number of rows, or 0 for no bound", l.Quota))
	}
	if l.MaxKeyBytes < MinClientKeyBytes || l.MaxKeyBytes > MaxClientKeyBytes {
		faults = append(faults, fmt.Errorf("Limits.MaxKeyBytes is %d: use %d to %d, or 0 for %d", l.MaxKeyBytes, MinClientKeyBytes, MaxClientKeyBytes, MaxClientKeyBytes))
	}
	if l.MaxInputBytes < 0 {
		faults = append(faults, fmt.Errorf("Limits.MaxInputBytes is %d: use a positive number of bytes, or 0 for %d", l.MaxInputBytes, DefaultMaxInputBytes))
	}
	if l.Timeout > 0 && l.Timeout < time.Millisecond {
		faults = append(faults, fmt.Errorf("Limits.Timeout is %s: use at least 1ms, 0 for %s, or a negative one for no bound", l.Timeout, DefaultTimeout))
	}
	if l.Retention < time.Second {
		faults = append(faults, fmt.Errorf("Limits.Retention is %s: use at least 1s, or 0 for %s", l.Retention, DefaultRetention))
	}
	return errors.Join(faults...)
}

// admit lets an execution in if there is room, and bounds its time.
func (s *Store) admit(ctx context.Context, req *Request) (_ context.Context, leave func(), err error) {
	l := s.config.Limits
	if n := s.executing.Add(1); l.MaxConcurrent > 0 && n > int64(l.MaxConcurrent) {
		s.executing.Add(-1)
		return nil, nil, NewError(CodeOverloaded, fmt.Sprintf("%d executions are running in this process, which is its limit (Limits.MaxConcurrent); try again", l.MaxConcurrent), nil)
	}
	cancel := func() {}
	if _, bounded := ctx.Deadline(); !bounded && l.Timeout > 0 && req.Begin != BeginLeased {
		ctx, cancel = context.WithTimeout(ctx, l.Timeout)
	}
	return ctx, func() {
		cancel()
		s.executing.Add(-1)
	}, nil
}

// quotaLeft refuses a new key of an owner that keeps its fill, on the
// connection that is to claim it, which is then given back. It costs one round
// trip, and reads at most Quota rows of the index.
func (s *Store) quotaLeft(ctx context.Context, conn *pgxpool.Conn, req *Request) error {
	if s.config.Limits.Quota == 0 {
		return nil
	}
	batch := &pgx.Batch{}
	batch.Queue("begin read only")
	batch.Queue(quotaPlan)
	batch.Queue(s.statements(req.Owner).quota, ownerArgs(req.Owner, req.Key[:])...)
	batch.Queue("commit")
	var full bool
	var soonest int64
	err := pipeline(ctx, conn, batch, func(results pgx.BatchResults) error {
		for range 2 {
			if _, err := results.Exec(); err != nil {
				return err
			}
		}
		return results.QueryRow().Scan(&full, &soonest)
	})
	if err == nil && full {
		e := NewError(CodeQuota, fmt.Sprintf("the owner keeps %d rows, which is its quota (Limits.Quota); try again when some have expired", s.config.Limits.Quota), nil)
		e.RetryAfter = time.Duration(max(soonest, 1)) * time.Millisecond
		err = e
	}
	if err != nil {
		s.giveBack(ctx, conn)
	}
	return err
}

// quotaPlan leaves the planner only the index that is ordered by expiry: with
// any other plan the quota would read all that the owner has.
const quotaPlan = `SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),
       set_config('enable_sort', 'off', true), set_config('enable_incremental_sort', 'off', true)`

// quotaStatement says whether the owner is full for that key, and in how many
// milliseconds its next row expires. A key that is there needs no room. The
// quota is a part of the text, so that every plan knows it. A tenant's rows are
// asked for by a comparison of both columns, and in the order of both, which no
// index but the tenant's own can give.
func quotaStatement(keys, match string, tenant bool, quota int) string {
	unexpired, order := "k.expires_at > statement_timestamp()", "k.expires_at"
	if tenant {
		unexpired = "(k.tenant_id, k.expires_at) > ($1::bigint, statement_timestamp()) AND k.tenant_id <= $1::bigint"
		order = "k.tenant_id, k.expires_at"
	}
	return fmt.Sprintf(`SELECT count(*) >= %[5]d AND NOT EXISTS (
         SELECT FROM %[1]s k
          WHERE %[2]s AND (k.status IN ('completed', 'failed_permanent') OR k.expires_at > statement_timestamp())),
       coalesce(ceil(extract(epoch FROM min(o.expires_at) - statement_timestamp()) * 1000), 0)::bigint
  FROM (SELECT k.expires_at FROM %[1]s k WHERE %[3]s ORDER BY %[4]s LIMIT %[5]d) o`, keys, match, unexpired, order, quota)
}
