package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/valkey-io/valkey-go"

	"github.com/effectonce/effectonce/internal/clock"
)

// Gate is Valkey as the protocol uses it. It is safe for use by many goroutines.
type Gate struct {
	config  Config
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	cause   atomic.Pointer[error] // of the newest failure

	dialing sync.Mutex                    // held while a connection is made; nobody waits for it
	refusal string                        // the newest, under dialing
	client  atomic.Pointer[valkey.Client] // nil until the first connection
	clock   serverClock

	mu      sync.RWMutex
	started bool           // under mu
	closed  bool           // under mu
	queue   chan job       // closed when closed is set: the copier drains it, then ends
	running sync.WaitGroup // the copier, and questions to the server
	done    chan struct{}  // closed when nothing is left
	dropped atomic.Int64
	meters  *gateMeters
}

var _ Cache = (*Gate)(nil)

// New returns a gate. It does no I/O: see [Gate.Start].
func New(config Config) (*Gate, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("gate: new: %w", err)
	}
	g := &Gate{
		config: config,
		clock:  serverClock{zero: clock.Now()},
		queue:  make(chan job, config.Queue),
		done:   make(chan struct{}),
	}
	var err error
	if g.meters, err = newGateMeters(config.MeterProvider); err != nil {
		return nil, fmt.Errorf("gate: new: %w", err)
	}
	g.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:          "effectonce gate",
		MaxRequests:   1,
		Timeout:       config.Probe,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return c.ConsecutiveFailures > 0 },
		OnStateChange: g.changed,
	})
	return g, nil
}

// Start connects. A server that can't be reached is no error: the gate starts
// degraded and connects when it is back. A server that answers and refuses
// (wrong credentials, a command that is not allowed) is one: it would refuse
// for ever. After an error the gate is closed.
func (g *Gate) Start(ctx context.Context) error {
	var unwatched error
	g.mu.Lock()
	started, closed := g.started, g.closed
	if g.started = true; !started && !closed {
		g.running.Add(1)
		go g.copy() //nolint:contextcheck // what it connects serves every caller, and ends with none of them
		g.meters.watching, unwatched = g.meters.watch(g)
	}
	g.mu.Unlock()
	switch {
	case closed:
		return fmt.Errorf("gate: start: %w", errClosed)
	case started:
		return nil
	}
	err := unwatched
	if err == nil {
		err = g.connectWithin(ctx)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errRefused) || unwatched != nil || ctx.Err() != nil:
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), StartTimeout)
		defer cancel()
		return errors.Join(fmt.Errorf("gate: start: %w", err), g.Close(ctx))
	}
	if report, open := g.allow(); open == nil {
		report(err)
	}
	return nil
}

func (g *Gate) connectWithin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	connected := make(chan error, 1)
	g.spawn(func() { //nolint:contextcheck // what it connects serves every caller, and ends with none of them
		_, err := g.connect()
		connected <- err
	})
	select {
	case err := <-connected:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// spawn runs f beside the caller, unless the gate is closed; Close waits for it.
func (g *Gate) spawn(f func()) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return false
	}
	g.running.Add(1)
	go func() {
		defer g.running.Done()
		f()
	}()
	return true
}

// Close sends what is queued, disconnects, and returns when no goroutine and no
// connection is left, or with the context's error; the rest then goes on to its
// end by itself. It may be called more than once.
func (g *Gate) Close(ctx context.Context) error {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		close(g.queue)
		go func() {
			defer close(g.done)
			if w := g.meters.watching; w != nil {
				_ = w.Unregister()
			}
			g.running.Wait()
			if c := g.client.Load(); c != nil {
				(*c).Close()
			}
		}()
	}
	g.mu.Unlock()
	select {
	case <-g.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("gate: close: copies are still queued: %w", ctx.Err())
	}
}

// allow asks the breaker. Who is allowed must report what came of it: a first
// report counts, an error that isn't the server's doing is a success.
func (g *Gate) allow() (report func(error), err error) {
	done, err := g.breaker.Allow()
	if err != nil {
		return nil, ErrOpen
	}
	return func(err error) {
		if err == nil || errors.Is(err, errForeign) {
			done(true)
			return
		}
		g.cause.Store(&err)
		done(false)
	}, nil
}

func (g *Gate) changed(_ string, from, to gobreaker.State) {
	switch {
	case to == gobreaker.StateOpen && from == gobreaker.StateClosed:
		g.config.Logger.Warn("gate away: executions go to PostgreSQL until it is back", "error", *g.cause.Load())
	case to == gobreaker.StateClosed:
		g.config.Logger.Info("gate is back")
	}
}

// serverClock is Valkey's clock as its newest answer showed it: never ahead of
// the real one, so that an entry's end, reckoned by it, is never too late,
// however long the command is on its way.
type serverClock struct {
	zero   time.Time
	offset atomic.Int64 // the server's milliseconds less ours since zero
}

func (c *serverClock) set(milliseconds int64) {
	c.offset.Store(milliseconds - clock.Since(c.zero).Milliseconds() - 1)
}

// now is the server's time in Unix milliseconds.
func (c *serverClock) now() int64 { return c.offset.Load() + clock.Since(c.zero).Milliseconds() }
