package ledger

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/effectonce/effectonce/internal/clock"
)

// Execution is a running body's view of its own execution.
type Execution struct {
	store    *Store
	req      *Request
	patience *patience

	mu      sync.Mutex
	claim   *claim   // held while the transaction is open
	tx      *guarded // what the body has of it
	asked   bool     // the body has asked for its transaction
	replay  *Result  // the claim found the execution finished
	refused error    // the last claim failed
	ended   bool
	lease   *lease // of a leased claim
}

type contextKey struct{}

// FromContext returns the execution that ctx belongs to, and false outside of one.
func FromContext(ctx context.Context) (*Execution, bool) {
	x, ok := ctx.Value(contextKey{}).(*Execution)
	return x, ok
}

// Tx returns the execution's transaction; at the first call it begins, with the
// claim as its first step. It is the ledger's to end: COMMIT and ROLLBACK in
// any form are refused, and the body returns nil to commit or an error to roll
// back. It is dead once the body has returned.
//
// Errors: [ErrReplay] when the execution turns out to be finished already;
// [ErrNoExecution] outside of one; else an [*Error] with a code. The body
// should return any of them at once.
func Tx(ctx context.Context) (pgx.Tx, error) {
	switch x := ctx.Value(contextKey{}).(type) {
	case *Execution:
		return x.begin(ctx)
	case error:
		return nil, x
	default:
		return nil, ErrNoExecution
	}
}

// Refuse returns a context in which [Tx] answers with err, for callers that
// know why there can be no transaction.
func Refuse(ctx context.Context, err error) context.Context {
	return context.WithValue(ctx, contextKey{}, err)
}

// Key returns the execution's key: the same at each delivery, and so fit to
// hand to an outside API that knows idempotency keys.
func (x *Execution) Key() Key { return x.req.Key }

// Owner returns the key's owner.
func (x *Execution) Owner() Owner { return x.req.Owner }

// Asked reports whether the body has asked for its transaction.
func (x *Execution) Asked() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.asked
}

// Open reports whether the body's transaction is open.
func (x *Execution) Open() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.tx != nil && !x.ended
}

// begin is steps 2 and 3: the claim, in one pipeline with BEGIN, and the
// transaction handed to the body. In flight is waited for without a connection.
func (x *Execution) begin(ctx context.Context) (pgx.Tx, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.ended:
		return nil, errEnded
	case x.lease != nil:
		return nil, ErrLeased
	case x.tx != nil:
		return x.tx, nil
	case x.replay != nil:
		return nil, ErrReplay
	}
	x.asked = true
	for {
		c, f, err := x.store.claim(ctx, x.req)
		switch {
		case err != nil:
			x.refused = err
			return nil, err
		case c != nil:
			x.refused = nil
			x.claim = c
			x.tx = &guarded{conn: c.Conn.Conn()}
			return x.tx, nil
		case !f.inFlight:
			r := f.row.result()
			x.replay = &r
			return nil, ErrReplay
		}
		if err := x.patience.wait(ctx, x.store, f.row.Left); err != nil {
			x.refused = err
			return nil, err
		}
	}
}

// run calls the body. A panic rolls back and goes on unwinding.
func (x *Execution) run(ctx context.Context, body Body) (o Outcome, err error) {
	returned := false
	defer func() {
		if !returned {
			x.end()
			if x.claim != nil {
				x.store.abandon(ctx, x)
			}
		}
	}()
	o, err = body(context.WithValue(ctx, contextKey{}, x))
	returned = true
	return o, err
}

// end takes the transaction away from the body.
func (x *Execution) end() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	if x.tx != nil {
		x.tx.closed.Store(true)
	}
}

// answer is what a call returns whose claim wasn't had.
func (x *Execution) answer(err error) (Result, error) {
	if x.replay != nil {
		return *x.replay, nil
	}
	return Result{}, err
}

var errEnded = errors.New("ledger: the execution has ended: its transaction can't be used after the body has returned")

// patience is how long a duplicate waits in place, over all its waits.
type patience struct {
	until time.Time
	tries int
}

func newPatience(d time.Duration) *patience { return &patience{until: clock.Now().Add(d)} }

// wait pauses before the next look, holding nothing; when patience is at its
// end it answers in flight, with the lease left as the time to come back.
func (p *patience) wait(ctx context.Context, s *Store, lease time.Duration) error {
	left := clock.Until(p.until)
	if left <= 0 {
		return InFlight(max(lease, firstPause))
	}
	pause := min(clock.Backoff(p.tries, firstPause, lastPause), left)
	p.tries++
	if err := s.wait(ctx, pause); err != nil {
		if ctx.Err() == nil {
			return NewError(CodeUnavailable, "the store is closing", err)
		}
		return err
	}
	return nil
}
