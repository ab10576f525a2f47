package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/effectonce/effectonce/internal/clock"
)

// commit is step 4: the outcome and COMMIT behind it, in one pipeline, though
// the caller's context has ended meanwhile.
func (s *Store) commit(ctx context.Context, x *Execution, outcome Outcome) (Result, error) {
	c := x.claim
	if err := s.checkOutcome(outcome); err != nil {
		return Result{}, s.rollBack(ctx, x, err, s.failure(ctx, x.req, err))
	}
	switch pg := c.Conn.Conn().PgConn(); {
	case pg.IsClosed():
		c.Release()
		return Result{}, unavailable("commit", errors.New("the connection was lost before COMMIT was sent"))
	case pg.IsBusy():
		s.destroy(ctx, x)
		return Result{}, NewError(CodeInvalid, "the body returned with rows or a batch still open: close them before returning; nothing was committed", nil)
	case pg.TxStatus() == 'E':
		return Result{}, s.failed(ctx, x, fmt.Errorf("ledger: the body returned without the error that had aborted its transaction: %w", pgx.ErrTxCommitRollback))
	case pg.TxStatus() != 'T':
		return Result{}, s.bar(ctx, x, nil)
	}

	dctx, cancel := s.detached(ctx)
	defer cancel()
	column, payload := x.req.kept(outcome).encode(false)
	batch := &pgx.Batch{}
	batch.Queue(s.statements(x.req.Owner).finish, c.rowID, c.attempt, c.xid, column, payload)
	batch.Queue("commit")
	var tag pgconn.CommandTag
	var finishErr, err error
	_ = pipeline(dctx, c.Conn, batch, func(results pgx.BatchResults) error {
		if _, finishErr = results.Exec(); finishErr == nil {
			tag, err = results.Exec()
		}
		return nil
	}) // COMMIT's own answer decides; Release destroys a broken connection
	if finishErr != nil {
		err = finishErr
	}

	switch state := sqlState(err); {
	case err == nil && tag.String() == "COMMIT":
		c.Release()
	case err == nil:
		err := fmt.Errorf("ledger: COMMIT was answered with %s: %w", tag, pgx.ErrTxCommitRollback)
		return Result{}, s.rollBack(ctx, x, err, s.failure(ctx, x.req, err))
	case pgconn.SafeToRetry(err): // not a byte was sent
		s.destroy(ctx, x)
		return Result{}, unavailable("commit", err)
	case lost(err):
		c.Release()
		if err := s.settle(ctx, x, err); err != nil {
			return Result{}, err
		}
	case state == sqlNotOurClaim:
		return Result{}, s.bar(ctx, x, nil)
	case finishErr != nil && state != sqlSerialization && state != sqlDeadlock:
		err := unavailable("outcome", err)
		return Result{}, s.rollBack(ctx, x, err, Failure{})
	default: // the body's: a deferred constraint of the user's, or its isolation level
		return Result{}, s.rollBack(ctx, x, err, s.failure(ctx, x.req, err))
	}
	return Result{
		Outcome: outcome, Status: Completed, Source: Executed,
		RowID: c.rowID, Attempt: c.attempt, Identity: c.identity,
		Left: x.req.Retention - clock.Since(c.began),
	}, nil
}

// failed is step 5, for a body that returned an error. It returns that error as
// it is. A body that never asked for its transaction has nothing to roll back.
func (s *Store) failed(ctx context.Context, x *Execution, bodyErr error) error {
	f := s.failure(ctx, x.req, bodyErr)
	switch {
	case x.claim != nil && x.claim.Conn.Conn().PgConn().TxStatus() == 'I':
		return s.bar(ctx, x, bodyErr)
	case x.claim != nil:
		return s.rollBack(ctx, x, bodyErr, f)
	case f.Status == FailedPermanent:
		s.keepAs(ctx, x.req, f.Status, f.Outcome)
	}
	return bodyErr
}

// failure asks how a body's error is recorded. Nothing is once the attempt's
// context has ended, nor for 40001 and 40P01, nor of a panic.
func (s *Store) failure(ctx context.Context, req *Request, bodyErr error) (f Failure) {
	state := sqlState(bodyErr)
	if req.Failure == nil || ctx.Err() != nil || errors.Is(bodyErr, errPanic) || state == sqlSerialization || state == sqlDeadlock {
		return Failure{}
	}
	defer func() {
		if recover() != nil { // its text may hold what isn't ours to show
			s.config.Logger.ErrorContext(ctx, "Request.Failure panicked: failure not recorded", "request", *req)
			f = Failure{}
		}
	}()
	if f = req.Failure(bodyErr); f.Status != "" && s.checkOutcome(f.Outcome) != nil {
		return Failure{}
	}
	return f
}

// rollBack undoes the transaction whole and records the failure on its own, in
// one pipeline, which also says whether the claim stands all the same: then the
// body has ended the transaction itself. Where the connection is gone, nothing
// is recorded. It returns the body's error as it is.
func (s *Store) rollBack(ctx context.Context, x *Execution, bodyErr error, f Failure) error {
	c := x.claim
	pg := c.Conn.Conn().PgConn()
	if pg.IsClosed() || pg.IsBusy() {
		s.destroy(ctx, x)
		return bodyErr
	}

	dctx, cancel := s.detached(ctx)
	defer cancel()
	var status *string
	column, payload := "{}", []byte(nil)
	if f.Status != "" {
		text := string(f.Status)
		status = &text
		column, payload = f.Outcome.encode(false)
	}
	if pg.TxStatus() == 'E' {
		_, _ = c.Exec(dctx, "rollback") // an aborted transaction takes no new statement, not even to prepare it
	}
	batch := &pgx.Batch{}
	batch.Queue("rollback")
	batch.Queue(s.statements(x.req.Owner).fail, ownerArgs(x.req.Owner, x.req.Key[:], x.req.Fingerprint[:],
		c.rowID, c.attempt, status, column, payload, x.req.Retention.Milliseconds())...)
	var recorded, stands bool
	err := pipeline(dctx, c.Conn, batch, func(results pgx.BatchResults) error {
		if _, err := results.Exec(); err != nil {
			return err
		}
		return results.QueryRow().Scan(&recorded, &stands)
	})
	switch {
	case err != nil && f.Status != "":
		s.config.Logger.WarnContext(ctx, "failure not recorded", "request", *x.req, "error", err)
	case stands: // the body had ended the transaction and begun another
		return s.bar(ctx, x, bodyErr)
	}
	s.giveBack(ctx, c.Conn)
	return bodyErr
}

// bar answers a body that ended the ledger's transaction by a way that isn't
// guarded. What it wrote may stand, so that its key is barred for good, on
// whichever connection can be had. cause is what else went wrong.
func (s *Store) bar(ctx context.Context, x *Execution, cause error) error {
	x.claim.Release() // which destroys a connection that isn't idle
	recorded, err := s.barKey(ctx, x)
	s.config.Logger.ErrorContext(ctx, "a body ended the ledger's transaction itself", "request", *x.req, "barred", recorded, "error", err)
	return NewError(CodeInvalid, "the body ended the ledger's transaction itself (through Tx.Conn or a procedure): what it wrote before that may stand, and the key will never run again; let the body return instead, and look at the effect by hand", errors.Join(cause, err))
}

func (s *Store) barKey(ctx context.Context, x *Execution) (recorded bool, err error) {
	dctx, cancel := s.detached(ctx)
	defer cancel()
	column, _ := Outcome{Encoding: BarredEncoding}.encode(true)
	for try := 0; ; try++ {
		var conn session
		if conn, err = s.acquire(dctx); err == nil {
			err = conn.QueryRow(dctx, s.statements(x.req.Owner).bar, ownerArgs(x.req.Owner, x.req.Key[:], x.req.Fingerprint[:],
				x.claim.rowID, x.claim.attempt, column, x.req.Retention.Milliseconds())...).Scan(&recorded)
			conn.Release()
		}
		if err == nil || !lost(err) && sqlState(err) != sqlLockNotAvailable ||
			clock.Wait(dctx, clock.Backoff(try, firstPause, lastPause)) != nil {
			return recorded, err
		}
	}
}

// BarredEncoding is the encoding of the outcome of a key that was barred
// because its body had ended the transaction itself. It has no data.
const BarredEncoding = "effectonce/barred"

// destroy closes the connection, which rolls back on the server, and what the
// body has left open on it.
func (s *Store) destroy(ctx context.Context, x *Execution) {
	pg := x.claim.Conn.Conn().PgConn()
	_ = pg.Conn().Close()
	if pg.IsBusy() && x.tx.open != nil {
		x.tx.open()
	}
	dctx, cancel := s.detached(ctx)
	defer cancel()
	_ = pg.Close(dctx)
	x.claim.Release()
}
