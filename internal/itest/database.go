package itest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Database makes an empty database for this test on the shared PostgreSQL
// server and returns its DSN. It is dropped when the test ends, whoever is
// still connected. The user of DATABASE_URL must be allowed to make databases.
func Database(t testing.TB) string {
	t.Helper()
	return DatabaseOn(t, sharedPostgres.get(t).URL())
}

// DatabaseOn is [Database] on the server that dsn, a postgres:// URL, names.
func DatabaseOn(t testing.TB, dsn string) string {
	t.Helper()
	address, err := url.Parse(dsn)
	if err != nil || address.Scheme == "" {
		t.Fatal("itest: the DSN must be a postgres:// URL") // its text may hold a password
	}
	name := "test_" + strings.ToLower(rand.Text())
	if err := execute(dsn, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := execute(dsn, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	address.Path = "/" + name
	return address.String()
}

// Pool opens a pool, configured by the functions, and closes it when the test
// ends. A connection that the test has not given back by then fails it.
func Pool(t testing.TB, dsn string, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range configure {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := bounded(func(ctx context.Context) error {
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				pool.Close() // waits for every connection
			}()
			select {
			case <-closed:
				return nil
			case <-ctx.Done():
				return fmt.Errorf("itest: close the pool: %d connections were never given back", pool.Stat().AcquiredConns())
			}
		})
		if err != nil {
			t.Error(err)
		}
	})
	return pool
}

// execute runs one statement on a connection of its own.
func execute(dsn, statement string) error {
	return bounded(func(ctx context.Context) error {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return fmt.Errorf("itest: connect: %w", err)
		}
		defer func() { _ = conn.Close(ctx) }()
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("itest: %s: %w", statement, err)
		}
		return nil
	})
}
