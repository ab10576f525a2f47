package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/effectonce/effectonce/internal/clock"
)

// ErrLeased is what [Tx] answers to a body that runs under a lease.
var ErrLeased = NewError(CodeInvalid, "a leased execution has no transaction: its effect is outside of PostgreSQL; run it in the transactional mode, or use a connection of your own", nil)

// defaultLease is the lease where neither the request nor a deadline says one.
const defaultLease = time.Minute

// Fence is a claim's identity, which grows with each takeover of its row. An
// outside store that keeps the greatest it has seen can refuse a late writer.
type Fence struct {
	RowID   int64
	Attempt int32
}

// lease is a leased execution's hold on its key.
type lease struct {
	Fence
	identity Identity
	length   time.Duration
	cancel   context.CancelCauseFunc // ends the body when the claim is lost
}

// Fence returns the fencing number of a leased execution; false for one that
// has no lease.
func (x *Execution) Fence() (Fence, bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.lease == nil {
		return Fence{}, false
	}
	return x.lease.Fence, true
}

// Renew makes a leased execution's lease last for its whole length again, by
// one round trip. It answers with [CodeFenced] when the claim was taken over,
// and then ends the body's context; with [CodeUnavailable] when the database
// can't be reached: the lease then runs on. Without a lease it does nothing.
func (x *Execution) Renew(ctx context.Context) error {
	x.mu.Lock()
	l := x.lease
	x.mu.Unlock()
	if l == nil {
		return nil
	}
	tag, err := x.store.config.Pool.Exec(ctx, x.store.statements(x.req.Owner).renew, l.RowID, l.Attempt, l.length.Milliseconds())
	if err != nil {
		return unavailable("renew", err)
	}
	if tag.RowsAffected() == 0 {
		err := fenced()
		l.cancel(err)
		return err
	}
	return nil
}

func fenced() *Error {
	return NewError(CodeFenced, "the lease was over and another execution has taken the key over; nothing of this one was recorded", nil)
}

// executeLeased is the protocol for effects outside of PostgreSQL.
func (s *Store) executeLeased(ctx context.Context, x *Execution, body Body) (Result, error) {
	if x.req.Lease == 0 {
		x.req.Lease = defaultLease
		if left, ok := clock.Left(ctx); ok {
			x.req.Lease = left
		}
	}
	x.req.Lease = max(x.req.Lease, time.Millisecond)
	l, r, err := s.claimLease(ctx, x)
	if err != nil || l == nil {
		return r, err
	}
	bctx, cancel := context.WithCancelCause(x.attempt)
	defer cancel(nil)
	l.cancel = cancel
	x.lease = l
	outcome, err := x.run(ctx, bctx, body)
	x.end()
	if cause := context.Cause(bctx); CodeOf(cause) == CodeFenced { //nolint:contextcheck // the body's
		return Result{}, cause
	}
	if err != nil {
		f := s.failure(ctx, x.req, err)
		if f.Status != "" {
			if _, recordErr := s.recordLease(ctx, x, f.Status, f.Outcome); recordErr != nil {
				s.config.Logger.WarnContext(ctx, "failure not recorded", "request", *x.req, "error", recordErr)
			}
		}
		return Result{}, err
	}
	if err := s.checkOutcome(outcome); err != nil {
		return Result{}, err
	}
	return s.recordLease(ctx, x, Completed, outcome)
}

// claimLease commits the claim by one statement, and waits for another's lease
// without a connection. A claim whose answer was lost isn't sent again: it may
// stand, and would bar its own sender until its lease is over.
func (s *Store) claimLease(ctx context.Context, x *Execution) (*lease, Result, error) {
	for {
		var a answer
		conn, err := s.acquire(ctx)
		if err == nil {
			err = s.quotaLeft(ctx, conn.Conn, x.req)
		}
		if err == nil {
			err = a.scan(conn.QueryRow(ctx, s.statements(x.req.Owner).claim,
				claimArgs(x.req, x.req.Lease, Processing, 0, Outcome{})...))
			s.giveBack(ctx, conn.Conn)
		}
		state := sqlState(err)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, Result{}, fmt.Errorf("ledger: claim: %w", ctx.Err())
		case CodeOf(err) != "":
			return nil, Result{}, err
		case state == sqlLockNotAvailable:
			a.disposition = "in_flight"
		case state == sqlForeignKeyViolation:
			return nil, Result{}, unknownOwner(x.req.Owner, err)
		case err != nil:
			return nil, Result{}, unavailable("claim", err)
		case a.disposition == "claimed":
			s.tookOver(ctx, x.req, a.attempt)
			return &lease{Fence: Fence{RowID: a.id, Attempt: a.attempt}, identity: conn.identity, length: x.req.Lease}, Result{}, nil
		}
		f, err := a.found(conn.identity)
		if err != nil {
			return nil, Result{}, err
		}
		if !f.inFlight {
			return nil, f.row.result(), nil
		}
		if err := x.patience.wait(ctx, s, f.row.Left); err != nil {
			return nil, Result{}, err
		}
	}
}

// recordLease records the outcome if the claim is still ours, though the
// caller's context has ended. The effect has happened: it is tried until
// FinishTimeout, and the same record sent twice is recorded once.
func (s *Store) recordLease(ctx context.Context, x *Execution, status Status, outcome Outcome) (Result, error) {
	dctx, cancel := s.detached(ctx)
	defer cancel()
	l := x.lease
	column, payload := x.req.kept(outcome).encode(false)
	for try := 0; ; try++ {
		var recorded bool
		began := clock.Now()
		conn, err := s.acquire(dctx)
		if err == nil {
			err = conn.QueryRow(dctx, s.statements(x.req.Owner).record,
				l.RowID, l.Attempt, string(status), column, payload, x.req.Retention.Milliseconds()).Scan(&recorded)
			s.giveBack(dctx, conn.Conn)
		}
		switch {
		case err == nil && recorded:
			return Result{
				Outcome: outcome, Status: status, Source: Executed,
				RowID: l.RowID, Attempt: l.Attempt, Identity: conn.identity,
				Left: x.req.Retention - clock.Since(began),
			}, nil
		case err == nil:
			return Result{}, fenced()
		case !lost(err) && sqlState(err) != sqlLockNotAvailable:
			return Result{}, unavailable("record", err)
		}
		if clock.Wait(dctx, clock.Backoff(try, firstPause, lastPause)) != nil {
			s.inDoubt(ctx, x.req, unknown, err, nil)
			e := unavailable("record", err)
			e.InDoubt = true
			return Result{}, e
		}
	}
}
