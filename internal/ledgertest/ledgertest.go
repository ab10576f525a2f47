// Package ledgertest gives tests databases with the ledger's schema in them.
// It may import itest, migrations and ledger; only tests import it.
package ledgertest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/ledger"
	"github.com/effectonce/effectonce/migrations"
)

// Tenants are the tenants that each database has.
const (
	TenantA int64 = 1
	TenantB int64 = 2
)

// Database makes a database of the test's own, migrated for the platform and
// for tenants, with a table effects(name text) that counts effects. It returns
// its DSN.
func Database(t testing.TB) string {
	t.Helper()
	dsn := itest.Database(t)
	Migrate(t, dsn)
	return dsn
}

// Migrate does the same to a database that is there.
func Migrate(t testing.TB, dsn string) {
	t.Helper()
	ctx := t.Context()
	pool, err := pgxpool.New(ctx, dsn)
	require.NoError(t, err)
	defer pool.Close()
	_, err = pool.Exec(ctx, `CREATE TABLE tenants (id bigint PRIMARY KEY);
INSERT INTO tenants VALUES (1), (2);
CREATE TABLE effects (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL)`)
	require.NoError(t, err)
	m, err := migrations.New(pool, migrations.Options{TenantsTable: "tenants"})
	require.NoError(t, err)
	_, err = m.Up(ctx)
	require.NoError(t, err)
}

// Store returns a store on the pool. It is closed, and must have come to rest,
// when the test ends.
func Store(t testing.TB, pool *pgxpool.Pool, configure ...func(*ledger.Config)) *ledger.Store {
	t.Helper()
	config := ledger.Config{Pool: pool, Tenants: true}
	for _, change := range configure {
		change(&config)
	}
	s, err := ledger.NewStore(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close(context.WithoutCancel(t.Context()))) })
	return s
}

// Effects counts the effects with that name.
func Effects(t testing.TB, pool *pgxpool.Pool, name string) int {
	t.Helper()
	var n int
	require.NoError(t, pool.QueryRow(context.WithoutCancel(t.Context()), "SELECT count(*) FROM effects WHERE name = $1", name).Scan(&n))
	return n
}

// Effect writes one effect through the execution's transaction.
func Effect(ctx context.Context, name string) error {
	tx, err := ledger.Tx(ctx)
	if err != nil {
		return err
	}
	return Write(ctx, tx, name)
}

// Write writes one effect.
func Write(ctx context.Context, tx pgx.Tx, name string) error {
	_, err := tx.Exec(ctx, "INSERT INTO effects (name) VALUES ($1)", name)
	return err
}
