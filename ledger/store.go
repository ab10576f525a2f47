package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"

	"github.com/effectonce/effectonce/internal/clock"
)

// Defaults of [Config].
const (
	DefaultSchema         = "public"
	DefaultFinishTimeout  = 10 * time.Second
	DefaultMaxResultBytes = 2 << 20
	DefaultRetention      = 7 * 24 * time.Hour
	DefaultWait           = 5 * time.Second
	DefaultPruneInterval  = time.Minute
	DefaultPruneBatch     = 1000
	DefaultPruneTimeout   = 5 * time.Second
)

// Config says where the ledger is and how far it may go. The zero value of
// each field but Pool is its default.
type Config struct {
	// Pool is the primary's connections. Required; borrowed: the store never
	// closes it. The store takes at most one connection for each execution.
	Pool *pgxpool.Pool
	// Schema is where the migrations put the ledger's tables. Default "public".
	Schema string
	// Tenants says that tenants' keys are used as well as the platform's, so
	// that [Store.Validate] looks for their table too.
	Tenants bool
	// FinishTimeout bounds what has to be done after the caller's context has
	// ended: the commit of a body that has succeeded, roll-backs, the record of
	// a failure. Default 10 s, at least 100 ms.
	FinishTimeout time.Duration
	// MaxResultBytes bounds one encoded result; a larger one is refused before
	// COMMIT with [CodeResultTooLarge]. Default 2 MiB, which is what a Temporal
	// namespace accepts unless it says otherwise.
	MaxResultBytes int
	// LongestRetention is the longest [Request.Retention] in use: a leased claim
	// whose lease was over that long ago was abandoned, and is deleted like a
	// finished row. Default 7 days, at least 1 s.
	LongestRetention time.Duration
	// PruneInterval is the pause between two passes of the store's own pruner (see
	// [Store.Start]), jittered: at least half of it. Default 1 min, at least 1 ms.
	PruneInterval time.Duration
	// PruneBatch is how many rows one batch deletes, each batch in a transaction
	// of its own. Default 1000, 1 to [MaxPruneBatch].
	PruneBatch int
	// PruneTimeout bounds one batch in PostgreSQL, where it is the transaction's
	// statement_timeout. Default 5 s, at least 1 ms.
	PruneTimeout time.Duration
	// Limits say how much the store takes on.
	Limits Limits
	// Logger gets one line where a person should know. Default: discards.
	Logger *slog.Logger
	// MeterProvider makes the metrics. Default: the global one.
	MeterProvider metric.MeterProvider
}

func (c Config) withDefaults() Config {
	if c.Schema == "" {
		c.Schema = DefaultSchema
	}
	if c.FinishTimeout == 0 {
		c.FinishTimeout = DefaultFinishTimeout
	}
	if c.MaxResultBytes == 0 {
		c.MaxResultBytes = DefaultMaxResultBytes
	}
	if c.LongestRetention == 0 {
		c.LongestRetention = DefaultRetention
	}
	if c.PruneInterval == 0 {
		c.PruneInterval = DefaultPruneInterval
	}
	if c.PruneBatch == 0 {
		c.PruneBatch = DefaultPruneBatch
	}
	if c.PruneTimeout == 0 {
		c.PruneTimeout = DefaultPruneTimeout
	}
	c.Limits = c.Limits.withDefaults()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	return c
}

func (c Config) validate() error {
	var faults []error
	if c.Pool == nil {
		faults = append(faults, errors.New("Config.Pool is nil: pass the pool of the primary"))
	}
	if len(c.Schema) > 63 {
		faults = append(faults, fmt.Errorf("Config.Schema has %d bytes: PostgreSQL's names have at most 63", len(c.Schema)))
	}
	if c.FinishTimeout < 100*time.Millisecond {
		faults = append(faults, fmt.Errorf("Config.FinishTimeout is %s: use at least 100ms, or 0 for %s", c.FinishTimeout, DefaultFinishTimeout))
	}
	if c.MaxResultBytes < 0 {
		faults = append(faults, fmt.Errorf("Config.MaxResultBytes is %d: use a positive number of bytes, or 0 for %d", c.MaxResultBytes, DefaultMaxResultBytes))
	}
	if c.LongestRetention < time.Second {
		faults = append(faults, fmt.Errorf("Config.LongestRetention is %s: use at least 1s, or 0 for %s", c.LongestRetention, DefaultRetention))
	}
	if c.PruneInterval < time.Millisecond {
		faults = append(faults, fmt.Errorf("Config.PruneInterval is %s: use at least 1ms, or 0 for %s", c.PruneInterval, DefaultPruneInterval))
	}
	if c.PruneBatch < 1 || c.PruneBatch > MaxPruneBatch {
		faults = append(faults, fmt.Errorf("Config.PruneBatch is %d: use 1 to %d rows, or 0 for %d", c.PruneBatch, MaxPruneBatch, DefaultPruneBatch))
	}
	if c.PruneTimeout < time.Millisecond {
		faults = append(faults, fmt.Errorf("Config.PruneTimeout is %s: use at least 1ms, or 0 for %s", c.PruneTimeout, DefaultPruneTimeout))
	}
	if err := c.Limits.validate(); err != nil {
		faults = append(faults, err)
	}
	return errors.Join(faults...)
}

// Store is the ledger in one schema of one database. It is safe for use by
// many goroutines.
type Store struct {
	config   Config
	platform statements
	tenant   statements

	// identity is that of the newest connection.
	identity atomic.Pointer[Identity]
	// executing counts executions.
	executing atomic.Int64

	meters  meters // the clean-up's
	counts  counts // the executions'
	pruning pruning

	mu      sync.Mutex
	closed  bool
	active  sync.WaitGroup // executions, and clean-ups off their callers' path
	closing context.Context
	cancel  context.CancelFunc
	done    chan struct{}
}

// NewStore returns a store. It does no I/O: see [Store.Validate].
func NewStore(config Config) (*Store, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, fmt.Errorf("ledger: new store: %w", err)
	}
	s := &Store{
		config:   config,
		platform: newStatements(config.Schema, false, config.Limits.Quota),
		tenant:   newStatements(config.Schema, true, config.Limits.Quota),
		done:     make(chan struct{}),
	}
	var err error
	if s.meters, err = newMeters(config.MeterProvider); err == nil {
		s.counts, err = newCounts(config.MeterProvider)
	}
	if err != nil {
		return nil, fmt.Errorf("ledger: new store: %w", err)
	}
	s.closing, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// Config returns the store's configuration, defaults filled in.
func (s *Store) Config() Config { return s.config }

// Close ends the pruner, refuses new executions, cancels those that wait and the
// contexts of bodies, and returns when all of them and their clean-up have ended,
// or with the context's error; the rest then goes on to its end by itself. It may
// be called more than once.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.mu.Unlock()
	if first {
		s.cancel()
		go func() {
			s.active.Wait()
			close(s.done)
		}()
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ledger: close: executions are still running: %w", ctx.Err())
	}
}

// Done is closed after Close, once the pruner, all executions and their clean-up
// have ended.
func (s *Store) Done() <-chan struct{} { return s.done }

// enter counts a piece of work in, unless the store is closed.
func (s *Store) enter() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return NewError(CodeUnavailable, "the store is closed", nil)
	}
	s.active.Add(1)
	return nil
}

// background runs f off the caller's path. It must be called by work that has
// entered, so that Close waits for f too.
func (s *Store) background(f func()) {
	s.active.Add(1)
	go func() {
		defer s.active.Done()
		f()
	}()
}

// detached returns a context for what must be done though the caller's has
// ended: bounded by FinishTimeout.
func (s *Store) detached(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.config.FinishTimeout)
}

// inTime is like detached, but leaves the caller the time to answer by its
// deadline.
func (s *Store) inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	bound := s.config.FinishTimeout
	if left, ok := clock.Left(ctx); ok && ctx.Err() == nil {
		bound = min(bound, left-min(left/4, time.Second))
	}
	return context.WithTimeout(context.WithoutCancel(ctx), bound)
}

func (s *Store) statements(o Owner) *statements {
	if _, ok := o.TenantID(); ok {
		return &s.tenant
	}
	return &s.platform
}
