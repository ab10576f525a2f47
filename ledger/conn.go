package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/effectonce/effectonce/internal/clock"
)

// Identity tells one ledger from every other: the migration's random id,
// PostgreSQL's system identifier and timeline, and the schema. A promoted,
// restored or cloned database has another one.
type Identity struct {
	database string
	schema   string
}

// String returns the identity's text; it holds no secret.
func (i Identity) String() string { return i.database + "/" + i.schema }

// identityKey is where a connection keeps its ledger's identity.
const identityKey = "github.com/effectonce/effectonce/ledger.identity/"

// session is one of the pool's connections, held.
type session struct {
	*pgxpool.Conn
	identity Identity
}

// acquire waits for a connection until the context ends. A connection that is
// new to the store is asked for its ledger's identity, which costs one round
// trip in its life.
func (s *Store) acquire(ctx context.Context) (session, error) {
	conn, err := s.config.Pool.Acquire(ctx)
	if err != nil {
		return session{}, err
	}
	data := conn.Conn().PgConn().CustomData()
	key := identityKey + s.config.Schema
	if id, ok := data[key].(Identity); ok {
		return session{conn, id}, nil
	}
	var text string
	var recovering bool
	err = conn.QueryRow(ctx, identityQuery(pgx.Identifier{s.config.Schema}.Sanitize()+".")).Scan(&text, &recovering)
	if err != nil {
		s.giveBack(ctx, conn)
		return session{}, fmt.Errorf("read the ledger's identity: %w", err)
	}
	id := Identity{database: text, schema: s.config.Schema}
	if recovering {
		return session{conn, id}, nil // may be promoted yet: asked again next time
	}
	data[key] = id
	if old := s.identity.Load(); old == nil || *old != id {
		s.identity.Store(&id)
	}
	return session{conn, id}, nil
}

// Identity returns the ledger's identity as the newest connection read it, and
// connects if there is none yet.
func (s *Store) Identity(ctx context.Context) (Identity, error) {
	if id := s.identity.Load(); id != nil {
		return *id, nil
	}
	conn, err := s.acquire(ctx)
	if err != nil {
		return Identity{}, fmt.Errorf("ledger: identity: %w", err)
	}
	s.giveBack(ctx, conn.Conn)
	return conn.identity, nil
}

// giveBack returns a connection to the pool. One with an open transaction is
// rolled back first, off the caller's path.
func (s *Store) giveBack(ctx context.Context, conn *pgxpool.Conn) {
	if conn.Conn().IsClosed() || conn.Conn().PgConn().TxStatus() == 'I' {
		conn.Release()
		return
	}
	s.background(func() {
		ctx, cancel := s.detached(ctx)
		defer cancel()
		_, _ = conn.Exec(ctx, "rollback") // on an error Release destroys the connection
		conn.Release()
	})
}

// SQLSTATEs that the protocol tells apart.
const (
	sqlLockNotAvailable    = "55P03"
	sqlSerialization       = "40001"
	sqlDeadlock            = "40P01"
	sqlForeignKeyViolation = "23503"
	sqlQueryCanceled       = "57014" // by a statement's timeout, or by hand
	sqlNotOurClaim         = "EO001" // raised by the migrations' functions
)

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

// lost reports whether err says that the connection is gone, or that the
// server ended it, rather than that a statement failed.
func lost(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Severity == "FATAL" || pg.Severity == "PANIC" || pg.SeverityUnlocalized == "FATAL" || pg.SeverityUnlocalized == "PANIC"
	}
	return true
}

// Bounds of what is tried again without asking the caller.
const (
	maxTries   = 3
	firstPause = 20 * time.Millisecond
	lastPause  = 500 * time.Millisecond
)

// pause waits before try number n, never past the store's closing.
func (s *Store) pause(ctx context.Context, n int) error {
	return s.wait(ctx, clock.Backoff(n, firstPause, lastPause))
}

func (s *Store) wait(ctx context.Context, d time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)() //nolint:contextcheck // the store's own end, not the caller's
	return clock.Wait(ctx, d)
}
