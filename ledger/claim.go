package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/effectonce/effectonce/internal/clock"
)

// claim is an execution's hold on its key: a row inserted or taken over in a
// transaction that is still open.
type claim struct {
	session
	rowID   int64
	attempt int32
	xid     string    // the transaction's id, for a commit in doubt
	began   time.Time // before the claim was sent: retention has run since then at most
}

// found is what the claim's round trip brought back when the key isn't ours.
type found struct {
	row      Row
	inFlight bool
}

// claim sends BEGIN and the claim in one pipeline. It returns the claim; or
// what the ledger holds instead, the connection then being given back; or an
// error with a code. Nothing of an earlier try can have stayed behind when it
// tries again, because only the transaction that it lost had claimed.
func (s *Store) claim(ctx context.Context, req *Request) (*claim, found, error) {
	for try := 0; ; try++ {
		c, f, err := s.claimOnce(ctx, req)
		if err == nil {
			return c, f, nil
		}
		if ctx.Err() != nil {
			return nil, found{}, fmt.Errorf("ledger: claim: %w", ctx.Err())
		}
		again := false
		switch state := sqlState(err); {
		case CodeOf(err) != "":
			return nil, found{}, err
		case state == sqlLockNotAvailable:
			return nil, found{inFlight: true}, nil
		case state == sqlForeignKeyViolation:
			return nil, found{}, unknownOwner(req.Owner, err)
		case state == sqlSerialization, state == sqlDeadlock:
			again = true
		default:
			again = lost(err)
		}
		if !again || try+1 == maxTries || s.pause(ctx, try) != nil {
			return nil, found{}, unavailable("claim", err)
		}
	}
}

func unknownOwner(o Owner, cause error) *Error {
	return NewError(CodeInvalid, fmt.Sprintf("the owner %s is not in the tenants table: create the tenant first, or correct its id", o), cause)
}

func (s *Store) claimOnce(ctx context.Context, req *Request) (*claim, found, error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, found{}, err
	}
	if err := s.quotaLeft(ctx, conn.Conn, req); err != nil {
		return nil, found{}, err
	}
	idle := int64(0)
	if left, ok := clock.Left(ctx); ok {
		idle = max(left.Milliseconds(), 1)
	}
	batch := &pgx.Batch{}
	batch.Queue(beginStatement(req.Isolation))
	batch.Queue(s.statements(req.Owner).claim, claimArgs(req, req.Retention, Processing, idle, Outcome{})...)
	began := clock.Now()
	var a answer
	err = pipeline(ctx, conn.Conn, batch, func(results pgx.BatchResults) error {
		if _, err := results.Exec(); err != nil {
			return err
		}
		return a.scan(results.QueryRow())
	})
	if err != nil || a.disposition != "claimed" {
		s.giveBack(ctx, conn.Conn)
		if err != nil {
			return nil, found{}, err
		}
		f, err := a.found(conn.identity)
		return nil, f, err
	}
	s.tookOver(ctx, req, a.attempt)
	return &claim{session: conn, rowID: a.id, attempt: a.attempt, xid: *a.xid, began: began}, found{}, nil
}

// claimArgs are the claim's arguments: how long the row is to live, by when its
// transaction must have ended (0: no transaction), and as what it is inserted.
func claimArgs(req *Request, life time.Duration, status Status, idleMS int64, outcome Outcome) []any {
	column, payload := "{}", []byte(nil)
	if status != Processing {
		column, payload = outcome.encode(false)
	}
	return ownerArgs(req.Owner, req.Key[:], req.Fingerprint[:], life.Milliseconds(), idleMS,
		req.RerunPermanent, string(status), column, payload)
}

func beginStatement(level pgx.TxIsoLevel) string {
	switch level {
	case pgx.Serializable:
		return "begin isolation level serializable"
	case pgx.RepeatableRead:
		return "begin isolation level repeatable read"
	default:
		return "begin isolation level read committed"
	}
}

// answer is the row that the claim function returns.
type answer struct {
	disposition string
	id          int64
	attempt     int32
	status      *string
	outcome     *string
	payload     []byte
	leftMS      int64
	xid         *string
}

func (a *answer) scan(row pgx.Row) error {
	var id, left *int64
	var attempt *int32
	if err := row.Scan(&a.disposition, &id, &attempt, &a.status, &a.outcome, &a.payload, &left, &a.xid); err != nil {
		return err
	}
	if id != nil && attempt != nil {
		a.id, a.attempt = *id, *attempt
	}
	if left != nil {
		a.leftMS = *left
	}
	return nil
}

// found reads an answer that isn't a claim.
func (a *answer) found(identity Identity) (found, error) {
	left := time.Duration(a.leftMS) * time.Millisecond
	switch {
	case a.disposition == "in_flight":
		return found{inFlight: true, row: Row{Left: left}}, nil
	case a.disposition == "mismatch":
		return found{}, mismatch()
	case a.disposition == "replay" && a.status != nil && a.outcome != nil:
		outcome, _, err := decodeOutcome(*a.outcome, a.payload)
		if err != nil {
			return found{}, err
		}
		if Status(*a.status) == Completed && outcome.Encoding == markerEncoding {
			return found{}, alreadyCommitted()
		}
		return found{row: Row{
			ID: a.id, Attempt: a.attempt, Status: Status(*a.status), Outcome: outcome, Left: left, Identity: identity,
		}}, nil
	default:
		return found{}, NewError(CodeUnavailable, "claim: the ledger's functions and this library don't fit together; run the migrations of this version", nil)
	}
}
