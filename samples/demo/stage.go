package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/effectonce/effectonce/internal/servers"
	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/samples/transfer"
)

// closeLimit is how long cleaning up may take.
const closeLimit = 30 * time.Second

// stage is the three servers, a database of the demo's own, and the proxies
// through which the workers reach PostgreSQL and Valkey.
type stage struct {
	postgres *servers.Postgres
	valkey   *servers.Valkey
	temporal *servers.Temporal

	id       string // tells this run from others on the same servers
	database string
	passfile string        // for psql, if it was written
	dsn      string        // straight to the database
	pool     *pgxpool.Pool // likewise
	pg       *wire.Proxy
	link     string // the DSN through the proxy
	resp     *wire.Proxy
}

// newStage starts the servers, or uses those that the environment names, unless
// private ones are wanted in any case.
func newStage(ctx context.Context, private bool) (_ *stage, err error) {
	s := &stage{id: "demo-" + strings.ToLower(rand.Text()[:6])}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(ctx))
		}
	}()
	if err := s.startServers(ctx, private); err != nil {
		return nil, err
	}
	if err := s.makeDatabase(ctx); err != nil {
		return nil, err
	}
	if s.pg, s.link, err = wire.Through(context.WithoutCancel(ctx), s.dsn); err != nil {
		return nil, err
	}
	s.resp, err = wire.Listen(context.WithoutCancel(ctx), s.valkey.Addr(), wire.RESP)
	return s, err
}

func (s *stage) startServers(ctx context.Context, private bool) error {
	postgres, valkey, temporal := servers.UsePostgres, servers.UseValkey, servers.UseTemporal
	if private {
		postgres, valkey, temporal = servers.StartPostgres, servers.StartValkey, servers.StartTemporal
	}
	var faults [3]error
	var all sync.WaitGroup
	all.Go(func() { s.postgres, faults[0] = postgres(ctx, servers.PostgresOptions{}) })
	all.Go(func() { s.valkey, faults[1] = valkey(ctx, servers.ValkeyOptions{}) })
	all.Go(func() { s.temporal, faults[2] = temporal(ctx, servers.TemporalOptions{UI: true}) })
	all.Wait()
	return errors.Join(faults[:]...)
}

// makeDatabase makes a database with the sample's tables and some accounts.
func (s *stage) makeDatabase(ctx context.Context) error {
	address, err := url.Parse(s.postgres.URL())
	if err != nil || address.Scheme == "" {
		return fmt.Errorf("%s must be a postgres:// URL", servers.DatabaseURL) // the error may hold the password
	}
	name := "effectonce_" + strings.ReplaceAll(s.id, "-", "_")
	if err := s.execute(ctx, "CREATE DATABASE "+name); err != nil {
		return fmt.Errorf("make a database: %w", err)
	}
	s.database = name
	address.Path = "/" + name
	s.dsn = address.String()
	if s.pool, err = pgxpool.New(ctx, s.dsn); err != nil {
		return err
	}
	if err := transfer.Setup(ctx, s.pool); err != nil {
		return err
	}
	_, err = s.pool.Exec(ctx, `INSERT INTO accounts (id, balance)
SELECT who || '-' || n, $1 FROM unnest(ARRAY['payer', 'payee']) who, generate_series(1, $2::int) n`, balance, accounts)
	return err
}

// execute runs a statement in the database that the server came with.
func (s *stage) execute(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, s.postgres.URL())
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}

// killValkey ends the server, or, where it isn't ours to end, every way to it.
func (s *stage) killValkey() error {
	if s.valkey.Owned() {
		return s.valkey.Kill()
	}
	s.resp.Refuse()
	s.resp.Cut()
	return nil
}

// reviveValkey brings it back. A server of ours is empty then.
func (s *stage) reviveValkey(ctx context.Context) error {
	if s.valkey.Owned() {
		return s.valkey.Restart(ctx)
	}
	return s.resp.Heal()
}

// close leaves nothing behind: what was never made is nil.
func (s *stage) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	for _, proxy := range []*wire.Proxy{s.pg, s.resp} {
		if proxy != nil {
			proxy.Close()
		}
	}
	if s.pool != nil {
		s.pool.Close()
	}
	var faults []error
	if s.passfile != "" {
		faults = append(faults, os.Remove(s.passfile))
	}
	if s.database != "" {
		faults = append(faults, s.execute(ctx, "DROP DATABASE "+s.database+" WITH (FORCE)"))
	}
	if s.postgres != nil {
		faults = append(faults, s.postgres.Stop(ctx))
	}
	if s.valkey != nil {
		faults = append(faults, s.valkey.Stop(ctx))
	}
	if s.temporal != nil {
		faults = append(faults, s.temporal.Stop(ctx))
	}
	return errors.Join(faults...)
}
