package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"hash/fnv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3/lock"
)

// cleanUp bounds what is done after the work, though its context has ended.
const cleanUp = 5 * time.Second

var errSessionLost = errors.New("the session that held the lock was lost")

// oneSession connects once: the lock dies with its session, and the work must not
// go on in another.
type oneSession struct {
	driver.Connector
	used atomic.Bool
}

func (c *oneSession) Connect(ctx context.Context) (driver.Conn, error) {
	if c.used.Swap(true) {
		return nil, errSessionLost
	}
	return c.Connector.Connect(ctx)
}

// locked calls work with the one session that holds the schema's advisory lock,
// search_path set. The lock is tried for rather than waited for: a waiting
// statement's snapshot would hold up the concurrent index build of its holder.
func (m *Migrator) locked(ctx context.Context, work func(*sql.DB) error) (err error) {
	var held *pgx.Conn
	db := sql.OpenDB(&oneSession{Connector: m.connector(&held)})
	db.SetMaxOpenConns(1)
	defer func() {
		err = errors.Join(err, db.Close())
		if held != nil {
			waitClosed(held)
		}
	}()

	locker, err := lock.NewPostgresSessionLocker(
		lock.WithLockID(lockID(m.opts.Schema)),
		lock.WithLockTimeout(1, uint64((m.opts.LockWait+time.Second-1)/time.Second)), //nolint:gosec // validated: not negative
	)
	if err != nil {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	if err := locker.SessionLock(ctx, conn); err != nil {
		return errors.Join(m.lockFault(ctx, err), conn.Close())
	}
	// Back into its pool of one, where the work finds the same session.
	if err := conn.Close(); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
		defer cancel()
		conn, unlockErr := db.Conn(ctx)
		if unlockErr == nil {
			unlockErr = errors.Join(locker.SessionUnlock(ctx, conn), conn.Close())
		}
		if unlockErr != nil {
			m.opts.Logger.DebugContext(ctx, "migrations: the lock ends with its session", "error", unlockErr)
		}
	}()
	if _, err := db.ExecContext(ctx, m.settings()); err != nil {
		return err
	}
	if err := checkServer(ctx, db); err != nil {
		return err
	}
	return work(db)
}

// connector connects the way the pool does, its hooks included, and leaves the
// connection in held.
func (m *Migrator) connector(held **pgx.Conn) driver.Connector {
	pool := m.pool.Config()
	cfg := pool.ConnConfig
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // nothing prepared is left behind
	opts := []stdlib.OptionOpenDB{
		stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
			*held = conn
			if pool.AfterConnect == nil {
				return nil
			}
			if err := pool.AfterConnect(ctx, conn); err != nil {
				return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
			}
			return nil
		}),
	}
	if pool.BeforeConnect != nil {
		opts = append(opts, stdlib.OptionBeforeConnect(pool.BeforeConnect))
	}
	return stdlib.GetConnector(*cfg, opts...)
}

// settings are the session's: a step is bounded by its locks and by the caller's
// context, not by a statement_timeout that a role was given for other work.
func (m *Migrator) settings() string {
	return fmt.Sprintf("SET search_path = %s; SET lock_timeout = %d; SET statement_timeout = 0;",
		pgx.Identifier{m.opts.Schema}.Sanitize(), m.opts.LockTimeout.Milliseconds())
}

func (m *Migrator) lockFault(ctx context.Context, err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) || ctx.Err() != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return fmt.Errorf("lock: another migrator of schema %q was at work for %s (Options.LockWait): %w",
		m.opts.Schema, m.opts.LockWait, err)
}

// lockID is the same in every release.
func lockID(schema string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("effectonce.migrations/" + schema)) // never fails
	return int64(h.Sum64())                                   //nolint:gosec // any 64 bits will do
}

// waitClosed waits, bounded, until a connection that was broken off has told the
// server to stop.
func waitClosed(conn *pgx.Conn) {
	timer := time.NewTimer(cleanUp)
	defer timer.Stop()
	select {
	case <-conn.PgConn().CleanupDone():
	case <-timer.C:
	}
}
