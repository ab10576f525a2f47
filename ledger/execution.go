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
	attempt  context.Context // the caller's; over when the body has returned or the store closes
	over     context.CancelFunc

	mu      sync.Mutex
	claim   *claim   // held while the transaction is open
	tx      *guarded // what the body has of it
	asked   bool     // the body has asked for its transaction
	replay  *Result  // the claim found the execution finished
	refused error    // the last claim failed
	ended   bool
	lease   *lease // of a leased claim
}

func (s *Store) newExecution(ctx context.Context, req *Request) *Execution {
	x := &Execution{store: s, req: req, patience: newPatience(req.Wait)}
	attempt, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.closing, func() { cancel(errClosing) }) //nolint:contextcheck // the store's own end
	x.attempt, x.over = attempt, func() {
		stop()
		cancel(nil)
	}
	return x
}

// errClosing is the cause of a body's context that the store's closing ends.
var errClosing = NewError(CodeUnavailable, "the store is closing", nil)

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
	// The transaction belongs to the attempt, and so do its limits: a shorter
	// context ends the wait for it, one without an end doesn't make it endless.
	attempt, cancel := context.WithCancel(x.attempt)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	for {
		c, f, err := x.store.claim(attempt, x.req) //nolint:contextcheck // the attempt's: see above
		switch {
		case err != nil:
			x.refused = err
			return nil, err
		case c != nil:
			x.refused = nil
			x.claim = c
			x.tx = newGuarded(c.Conn.Conn())
			return x.tx, nil
		case !f.inFlight:
			r := f.row.result()
			x.replay = &r
			return nil, ErrReplay
		}
		if err := x.patience.wait(attempt, x.store, f.row.Left); err != nil { //nolint:contextcheck // the attempt's: see above
			x.refused = err
			return nil, err
		}
	}
}

// run calls the body with its own context. A panic rolls back and goes on
// unwinding.
func (x *Execution) run(ctx, own context.Context, body Body) (o Outcome, err error) {
	returned := false
	defer func() {
		if !returned {
			x.end()
			_ = x.store.failed(ctx, x, errPanic)
		}
	}()
	o, err = body(context.WithValue(own, contextKey{}, x))
	returned = true
	return o, err
}

// errPanic stands for the error that a panicking body has not returned.
var errPanic = errors.New("ledger: the body panicked")

// end takes the transaction away from the body. A claim that still waits, in a
// goroutine that the body has left behind, waits no longer.
func (x *Execution) end() {
	x.over()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	if x.tx != nil {
		x.tx.done.Store(true)
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
	s.counts.waiting.Add(ctx, 1)
	defer s.counts.waiting.Add(ctx, -1)
	if err := s.wait(ctx, pause); err != nil {
		if ctx.Err() == nil {
			return NewError(CodeUnavailable, "the store is closing", err)
		}
		return err
	}
	return nil
}
