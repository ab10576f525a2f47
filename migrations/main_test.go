package migrations_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/migrations"
)

func TestMain(m *testing.M) { os.Exit(itest.Main(m)) }

const tenantsDDL = "CREATE TABLE tenants (id bigint PRIMARY KEY, name text)"

var (
	platformSteps = []string{"0001_platform_tables.sql", "0002_platform_index.sql", "0003_platform_functions.sql"}
	tenantSteps   = []string{"0101_tenant_tables.sql", "0102_tenant_index.sql", "0103_tenant_functions.sql"}
)

// database returns a pool on a database of its own, with a tenants table in public.
func database(t *testing.T, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	pool := itest.Pool(t, itest.Database(t), configure...)
	exec(t, pool, tenantsDDL)
	return pool
}

func migrator(t *testing.T, pool *pgxpool.Pool, opts migrations.Options) *migrations.Migrator {
	t.Helper()
	m, err := migrations.New(pool, opts)
	require.NoError(t, err)
	return m
}

// migrated returns a migrator whose steps are all applied.
func migrated(t *testing.T, pool *pgxpool.Pool, opts migrations.Options) *migrations.Migrator {
	t.Helper()
	m := migrator(t, pool, opts)
	_, err := m.Up(t.Context())
	require.NoError(t, err)
	return m
}

type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

func exec(t *testing.T, db execer, sql string, args ...any) {
	t.Helper()
	_, err := db.Exec(t.Context(), sql, args...)
	require.NoError(t, err, sql)
}

// column returns the first column of a query's rows.
func column[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) []T {
	t.Helper()
	rows, err := pool.Query(t.Context(), sql, args...)
	require.NoError(t, err)
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(t, err)
	return values
}

// one returns a query's only value.
func one[T any](t *testing.T, pool *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	values := column[T](t, pool, sql, args...)
	require.Len(t, values, 1)
	return values[0]
}

// objects returns every relation, function, constraint and schema of the database.
func objects(t *testing.T, pool *pgxpool.Pool) []string {
	t.Helper()
	return column[string](t, pool, `
		SELECT 'class ' || oid::text || relname FROM pg_class WHERE relnamespace >= 16384 OR relnamespace = 'public'::regnamespace
		UNION ALL SELECT 'proc ' || oid::text || proname FROM pg_proc WHERE oid >= 16384
		UNION ALL SELECT 'constraint ' || oid::text || conname FROM pg_constraint WHERE oid >= 16384
		UNION ALL SELECT 'schema ' || nspname FROM pg_namespace WHERE oid >= 16384 ORDER BY 1`)
}

func names(steps []migrations.Step) []string {
	var names []string
	for _, step := range steps {
		names = append(names, step.Name)
	}
	return names
}

// statements splits a script the way psql does, as far as ours need it.
func statements(script string) []string {
	var all []string
	var buf strings.Builder
	var quoted bool
	for line := range strings.Lines(script) {
		buf.WriteString(line)
		if strings.Count(line, "$$")%2 == 1 {
			quoted = !quoted
		}
		code, _, _ := strings.Cut(line, "--")
		if !quoted && strings.HasSuffix(strings.TrimSpace(code), ";") {
			all = append(all, buf.String())
			buf.Reset()
		}
	}
	return all
}

// run executes a script in one session, statement by statement.
func run(t *testing.T, pool *pgxpool.Pool, script string) {
	t.Helper()
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	all := statements(script)
	require.NotEmpty(t, all)
	for _, statement := range all {
		_, err := conn.Exec(t.Context(), statement, pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err, statement)
	}
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func in(schema, format string, args ...any) string {
	return "SET LOCAL search_path = " + quote(schema) + "; " + fmt.Sprintf(format, args...)
}
