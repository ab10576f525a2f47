package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/valkey-io/valkey-go"
)

// Defaults of [Config].
const (
	DefaultPrefix        = "effectonce:"
	DefaultTimeout       = 100 * time.Millisecond
	DefaultProbe         = time.Second
	DefaultMaxEntryBytes = 64 << 10
	DefaultQueue         = 4096
	// StartTimeout bounds the first connection.
	StartTimeout = 5 * time.Second
)

// Config says how Valkey is reached and how far it may be waited for. Only
// Valkey.InitAddress is required; the zero value of each other field is its
// default.
type Config struct {
	// Valkey is how the server is reached: Valkey 7.2 and up, or Redis 7.0 and
	// up. Retries and client-side caching are switched off whatever it says.
	Valkey valkey.ClientOption
	// Prefix begins every key. Default "effectonce:".
	Prefix string
	// Timeout bounds one answer on the caller's path. A dead or stalled server
	// costs it once; then the breaker is open. Default 100 ms, at least 1 ms.
	Timeout time.Duration
	// Probe is how long the breaker stays open before one execution tries the
	// server again. Default 1 s.
	Probe time.Duration
	// MaxEntryBytes bounds a copied result; a larger one stays in the ledger
	// only. Default 64 KiB.
	MaxEntryBytes int
	// Queue is how many copies may wait to be sent; more are dropped, which
	// costs a ledger replay each. Default 4,096.
	Queue int
	// Logger gets one line when the gate is lost and one when it is back.
	// Default: discards.
	Logger *slog.Logger
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Probe == 0 {
		c.Probe = DefaultProbe
	}
	if c.MaxEntryBytes == 0 {
		c.MaxEntryBytes = DefaultMaxEntryBytes
	}
	if c.Queue == 0 {
		c.Queue = DefaultQueue
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Valkey.DisableRetry = true
	c.Valkey.DisableCache = true
	if c.Valkey.Dialer.Timeout == 0 {
		c.Valkey.Dialer.Timeout = StartTimeout
	}
	return c
}

func (c Config) validate() error {
	var faults []error
	if len(c.Valkey.InitAddress) == 0 {
		faults = append(faults, errors.New("Config.Valkey.InitAddress is empty: name at least one host:port"))
	}
	if c.Timeout < time.Millisecond {
		faults = append(faults, fmt.Errorf("Config.Timeout is %s: use at least 1ms, or 0 for %s", c.Timeout, DefaultTimeout))
	}
	if c.Probe < time.Millisecond {
		faults = append(faults, fmt.Errorf("Config.Probe is %s: use at least 1ms, or 0 for %s", c.Probe, DefaultProbe))
	}
	if c.MaxEntryBytes < 0 {
		faults = append(faults, fmt.Errorf("Config.MaxEntryBytes is %d: use a positive number of bytes, or 0 for %d", c.MaxEntryBytes, DefaultMaxEntryBytes))
	}
	if c.Queue < 0 {
		faults = append(faults, fmt.Errorf("Config.Queue is %d: use a positive number, or 0 for %d", c.Queue, DefaultQueue))
	}
	return errors.Join(faults...)
}

// Gate is Valkey as the protocol uses it. It is safe for use by many goroutines.
type Gate struct {
	config  Config
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]

	client  atomic.Pointer[valkey.Client] // nil until the first connection
	dialing sync.Mutex                    // held while a connection is made, and to close
	closed  bool                          // under dialing

	queue   chan job
	stop    chan struct{} // closed by Close: drain what is queued, then end
	stopped chan struct{} // closed when the copier has ended
	once    sync.Once
	started atomic.Bool
	dropped atomic.Int64
}

var _ Cache = (*Gate)(nil)

// New returns a gate. It does no I/O: see [Gate.Start].
func New(config Config) (*Gate, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("gate: new: %w", err)
	}
	g := &Gate{
		config:  config,
		queue:   make(chan job, config.Queue),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
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

func (g *Gate) changed(_ string, from, to gobreaker.State) {
	switch {
	case to == gobreaker.StateOpen && from == gobreaker.StateClosed:
		g.config.Logger.Warn("gate lost: executions go to PostgreSQL until it is back")
	case to == gobreaker.StateClosed:
		g.config.Logger.Info("gate is back")
	}
}

// Start connects. A server that can't be reached is no error: the gate starts
// degraded and connects when it is back. A server that answers and refuses
// (wrong credentials, a command that is not allowed) is one: it would refuse
// for ever.
func (g *Gate) Start(ctx context.Context) error {
	if !g.started.CompareAndSwap(false, true) {
		return nil
	}
	go g.copy() //nolint:contextcheck // it lives until Close, whatever becomes of the start
	ctx, cancel := context.WithTimeout(ctx, StartTimeout)
	defer cancel()
	client, err := g.dial()
	if err == nil {
		err = g.check(ctx, client)
	}
	if refusal, ok := valkey.IsValkeyErr(err); ok && !passing(refusal) {
		_ = g.Close(ctx)
		return fmt.Errorf("gate: start: Valkey answers and refuses: check the user, the password and its rights (SET, GET, PTTL, EVAL): %w", err)
	}
	if err != nil {
		g.config.Logger.WarnContext(ctx, "gate starts degraded: executions go to PostgreSQL until Valkey is reached", "error", err)
		if done, err := g.breaker.Allow(); err == nil {
			done(false)
		}
	}
	return nil
}

// passing reports whether a server's refusal will pass by itself.
func passing(err *valkey.ValkeyError) bool {
	return err.IsLoading() || err.IsTryAgain() || err.IsClusterDown() || strings.HasPrefix(err.Error(), "MASTERDOWN") || strings.HasPrefix(err.Error(), "READONLY")
}

// check makes sure of the rights that the gate needs.
func (g *Gate) check(ctx context.Context, client valkey.Client) error {
	key := g.config.Prefix + "start"
	for _, r := range client.DoMulti(ctx,
		client.B().Set().Key(key).Value("1").Nx().Get().PxMilliseconds(1).Build(),
		client.B().Pttl().Key(key).Build(),
		client.B().Eval().Script(releaseScript).Numkeys(1).Key(key).Arg("").Build(),
	) {
		if err := r.Error(); err != nil && !valkey.IsValkeyNil(err) {
			return err
		}
	}
	return nil
}

// dial makes the client, unless there is one. It may take as long as the
// dialer's timeout, and so never runs on an execution's path.
func (g *Gate) dial() (valkey.Client, error) {
	g.dialing.Lock()
	defer g.dialing.Unlock()
	if c := g.client.Load(); c != nil {
		return *c, nil
	}
	if g.closed {
		return nil, errNotConnected
	}
	c, err := valkey.NewClient(g.config.Valkey)
	if err != nil {
		if c != nil {
			c.Close()
		}
		return nil, err
	}
	g.client.Store(&c)
	return c, nil
}

// Close sends what is queued, bounded by the context, and disconnects.
func (g *Gate) Close(ctx context.Context) error {
	g.once.Do(func() { close(g.stop) })
	var err error
	if g.started.Load() {
		select {
		case <-g.stopped:
		case <-ctx.Done():
			err = fmt.Errorf("gate: close: copies are still queued: %w", ctx.Err())
		}
	}
	g.dialing.Lock()
	defer g.dialing.Unlock()
	g.closed = true
	if c := g.client.Load(); c != nil {
		(*c).Close()
	}
	return err
}
