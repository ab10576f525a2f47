package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/effectonce/effectonce/internal/clock"
)

// fate is what became of a transaction whose COMMIT was never answered.
type fate string

const (
	committed  fate = "committed"
	rolledBack fate = "rolled back"
	unknown    fate = "unknown"
	endedEarly fate = "ended by the body"
)

// settle is step 6: the connection died while COMMIT was under way. It returns
// nil when the transaction has surely committed. Looking once isn't enough: a
// backend whose client is gone can still be inside COMMIT, seen as no row.
// While in doubt neither a failure nor anything else is recorded.
func (s *Store) settle(ctx context.Context, x *Execution, cause error) error {
	f, err := s.fateOf(ctx, x)
	s.inDoubt(ctx, x.req, f, cause, err)
	switch f {
	case committed:
		return nil
	case rolledBack:
		return NewError(CodeUnavailable, "commit: the connection was lost and the transaction was rolled back; try again", cause)
	case endedEarly:
		return s.bar(ctx, x, cause)
	default:
		e := NewError(CodeUnavailable, "commit: the connection was lost during COMMIT and the transaction may have committed; try again with the same key, which finds out", errors.Join(cause, err))
		e.InDoubt = true
		return e
	}
}

// fateOf asks until it is sure, at most until the attempt's deadline (or
// FinishTimeout, where there is none or the caller has gone).
func (s *Store) fateOf(ctx context.Context, x *Execution) (fate, error) {
	dctx, cancel := s.untilDeadline(ctx)
	defer cancel()
	seen := 0
	for try := 0; ; try++ {
		f, again, err := s.askFate(dctx, x)
		switch {
		case err == nil && !again:
			return f, nil
		case err == nil && f == committed:
			// Committed between the row's snapshot and the question: the row is
			// there now, unless the body had committed it by itself or it was purged.
			if seen++; seen > 1 {
				return committed, nil
			}
		}
		if waitErr := clock.Wait(dctx, clock.Backoff(try, firstPause, lastPause)); waitErr != nil {
			return unknown, err
		}
	}
}

// askFate asks the server once. again says that a later answer may be surer.
func (s *Store) askFate(ctx context.Context, x *Execution) (f fate, again bool, err error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return unknown, true, err
	}
	defer conn.Release()
	var (
		writable, same bool
		id             *int64
		attempt        *int32
		status, xact   *string
		c              = x.claim
	)
	err = conn.QueryRow(ctx, s.statements(x.req.Owner).doubt,
		ownerArgs(x.req.Owner, x.req.Key[:], c.xid, c.identity.database)...).
		Scan(&writable, &same, &id, &attempt, &status, &xact)
	if errors.Is(err, pgx.ErrNoRows) {
		err = fmt.Errorf("the ledger's identity is gone: %w", err)
	}
	if err != nil {
		return unknown, true, err
	}
	ours := id != nil && *id == c.rowID && *attempt == c.attempt
	switch {
	case ours && Status(*status) == Completed:
		return committed, false, nil
	case !writable:
		return unknown, true, nil // a standby: the next connection may reach the primary
	case !same || xact == nil:
		return unknown, false, nil // a restored, promoted or much later server can't tell
	case *xact == "aborted":
		return rolledBack, false, nil
	case *xact == "committed" && ours:
		return endedEarly, false, nil
	case *xact == "committed":
		return committed, true, nil
	default: // in progress
		return unknown, true, nil
	}
}

// untilDeadline is like detached, but lasts until the caller's deadline while
// the caller is there.
func (s *Store) untilDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	left, ok := clock.Left(ctx)
	if !ok || left < s.config.FinishTimeout {
		return s.detached(ctx)
	}
	dctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), left)
	stop := context.AfterFunc(ctx, func() {
		// The caller has gone: FinishTimeout more, then give up.
		_ = clock.Wait(dctx, s.config.FinishTimeout)
		cancel()
	})
	return dctx, func() {
		stop()
		cancel()
	}
}
