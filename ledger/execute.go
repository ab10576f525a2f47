package ledger

import (
	"context"
	"fmt"

	"github.com/effectonce/effectonce/internal/clock"
)

// Execute runs the body once for the request's key, or returns the outcome of
// the execution that did: see the package's protocol. The body never runs twice
// in one call.
//
// An error is either the body's own, as it is, or an [*Error] with a code.
func (s *Store) Execute(ctx context.Context, req Request, body Body) (Result, error) {
	req = req.withDefaults(s.config.Limits)
	if err := req.validate(); err != nil {
		return Result{}, err
	}
	if err := s.enter(); err != nil {
		return Result{}, err
	}
	defer s.active.Done()
	if err := ctx.Err(); err != nil {
		return Result{}, fmt.Errorf("ledger: the deadline has passed or the caller has gone before the body: %w", err)
	}

	ctx, leave, err := s.admit(ctx, &req)
	if err != nil {
		return Result{}, err
	}
	defer leave()

	x := s.newExecution(ctx, &req)
	defer x.over()
	if req.Late || req.Begin == BeginLate && !req.Fresh {
		if r, ok, err := s.lookBefore(ctx, &req, x.patience); ok || err != nil {
			return r, err
		}
	}
	switch req.Begin {
	case BeginLeased:
		return s.executeLeased(ctx, x, body)
	case BeginAtOnce:
		if _, err := x.begin(ctx); err != nil {
			return x.answer(err)
		}
	}

	outcome, err := x.run(ctx, x.attempt, body)
	x.end()
	switch {
	case x.replay != nil || x.refused != nil:
		return x.answer(x.refused)
	case err != nil:
		return Result{}, s.failed(ctx, x, err)
	case x.claim == nil:
		return s.keep(ctx, &req, outcome)
	default:
		return s.commit(ctx, x, outcome)
	}
}

// lookBefore is step 1: a finished row is replayed; one in process is waited
// for, so that the body isn't begun in vain.
func (s *Store) lookBefore(ctx context.Context, req *Request, p *patience) (Result, bool, error) {
	for {
		row, ok, err := s.look(ctx, req.ref())
		switch {
		case err == nil && !ok && req.Late:
			return Result{}, false, expired()
		case err != nil || !ok:
			return Result{}, false, err
		}
		if r, ok, err := row.Replays(*req); ok || err != nil {
			return r, ok, err
		}
		if row.Status != Processing || row.Left <= 0 {
			return Result{}, false, nil
		}
		if err := p.wait(ctx, s, row.Left); err != nil {
			return Result{}, false, err
		}
	}
}

// keep records the outcome of a body that never asked for its transaction, by
// one INSERT. What it did is outside of PostgreSQL and has happened, so that
// its outcome stands whether or not it can be kept.
func (s *Store) keep(ctx context.Context, req *Request, outcome Outcome) (Result, error) {
	return s.keepAs(ctx, req, Completed, outcome), nil
}

func (s *Store) keepAs(ctx context.Context, req *Request, status Status, outcome Outcome) Result {
	own := Result{Outcome: outcome, Status: status, Source: Executed}
	if err := s.checkOutcome(outcome); err != nil {
		s.config.Logger.WarnContext(ctx, "result not kept: a lost answer will run the body again", "request", *req, "error", err)
		return own
	}
	kctx, cancel := s.inTime(ctx)
	defer cancel()
	var err error
	for try := 0; ; try++ {
		var r Result
		if r, err = s.keepOnce(kctx, req, own); err == nil {
			return r
		}
		if CodeOf(err) == CodeAlreadyCommitted {
			return own // its own marker, or another's
		}
		if CodeOf(err) != "" || !lost(err) || kctx.Err() != nil || try+1 == maxTries || s.pause(kctx, try) != nil {
			break
		}
	}
	s.config.Logger.WarnContext(ctx, "result not kept: a lost answer will run the body again", "request", *req, "error", err)
	return own
}

// keepOnce sends the outcome. Sent again because its answer was lost, it finds
// itself.
func (s *Store) keepOnce(ctx context.Context, req *Request, own Result) (Result, error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return own, err
	}
	began := clock.Now()
	var a answer
	err = a.scan(conn.QueryRow(ctx, s.statements(req.Owner).claim, claimArgs(req, req.Retention, own.Status, 0, req.kept(own.Outcome))...))
	s.giveBack(ctx, conn.Conn)
	if err != nil {
		return own, err
	}
	if a.disposition == "claimed" {
		own.RowID, own.Attempt, own.Identity = a.id, a.attempt, conn.identity
		own.Left = req.Retention - clock.Since(began)
		return own, nil
	}
	f, err := a.found(conn.identity)
	switch {
	case err != nil:
		return own, err
	case f.inFlight:
		return own, InFlight(f.row.Left)
	default:
		return f.row.result(), nil // another delivery was first: both answer the same
	}
}

// checkOutcome refuses what could not be replayed.
func (s *Store) checkOutcome(o Outcome) error {
	if err := validEncoding(o.Encoding); err != nil {
		return NewError(CodeInvalid, "Outcome.Encoding: "+err.Error(), nil)
	}
	if len(o.Data) > s.config.MaxResultBytes {
		return NewError(CodeResultTooLarge, fmt.Sprintf("the result has %d bytes, the limit is %d (Config.MaxResultBytes); nothing was committed", len(o.Data), s.config.MaxResultBytes), nil)
	}
	return nil
}
