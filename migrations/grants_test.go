package migrations_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/migrations"
)

// role makes a role that is dropped again after the test's database: call it
// before the database is made, or drop what the role owns there.
func role(t *testing.T) string {
	t.Helper()
	admin := itest.Pool(t, itest.Database(t))
	name := "role_" + strings.ToLower(rand.Text())
	exec(t, admin, "CREATE ROLE "+name)
	t.Cleanup(func() {
		_, err := admin.Exec(context.WithoutCancel(t.Context()), "DROP ROLE "+name)
		assert.NoError(t, err)
	})
	return name
}

// pgxPool returns another pool on the same database.
func pgxPool(t *testing.T, pool *pgxpool.Pool, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	return itest.Pool(t, pool.Config().ConnString(), configure...)
}

// as returns a pool on the same database whose connections have the role.
func as(t *testing.T, pool *pgxpool.Pool, role string) *pgxpool.Pool {
	t.Helper()
	return pgxPool(t, pool, func(c *pgxpool.Config) {
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, "SET ROLE "+role)
			return err
		}
	})
}

func TestGrantsAreEnoughAndNoMore(t *testing.T) {
	t.Parallel()
	role := role(t)
	pool := database(t)
	exec(t, pool, "INSERT INTO tenants VALUES (7); ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
	opts := migrations.Options{Schema: `the "ledger"`, TenantsTable: "public.tenants"}
	owner := migrated(t, pool, opts)
	runtime := as(t, pool, role)
	m := migrator(t, runtime, opts)
	require.ErrorContains(t, m.Validate(t.Context()), "run the statements of Grants")

	grants, err := owner.Grants(role)
	require.NoError(t, err)
	exec(t, pool, grants)
	require.NoError(t, m.Validate(t.Context()))
	status, err := m.Status(t.Context())
	require.NoError(t, err)
	assert.True(t, status[0].Applied)
	steps, err := m.Up(t.Context())
	require.NoError(t, err, "nothing to do needs no rights")
	assert.Empty(t, steps)

	inside := func(sql string, args ...any) error {
		return pgx.BeginFunc(t.Context(), runtime, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SET LOCAL search_path = "+quote(opts.Schema)); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), sql, args...)
			return err
		})
	}
	const keyColumns, keyValues = "idempotency_key, request_fingerprint, expires_at", "sha256('k'), sha256('r'), now()"
	for table, insert := range map[string]string{
		"platform_idempotency_keys":     fmt.Sprintf("(%s) VALUES (%s)", keyColumns, keyValues),
		"idempotency_keys":              fmt.Sprintf("(tenant_id, %s) VALUES (7, %s)", keyColumns, keyValues),
		"platform_idempotency_payloads": "VALUES (1, 'x')",
		"idempotency_payloads":          "VALUES (1, 'x')",
	} {
		require.NoError(t, inside("INSERT INTO "+table+" "+insert), table)
		require.NoError(t, inside("SELECT * FROM "+table+" FOR UPDATE SKIP LOCKED"), table)
		change := "payload = 'y'"
		if strings.HasSuffix(table, "keys") {
			change = "attempt = attempt + 1"
		}
		require.NoError(t, inside("UPDATE "+table+" SET "+change), table)
		require.NoError(t, inside("DELETE FROM "+table), table)
		for _, refused := range []string{"TRUNCATE ", "DROP TABLE ", "CREATE INDEX ON ", "ALTER TABLE "} {
			sql := refused + table
			switch refused {
			case "CREATE INDEX ON ":
				sql += " (id)"
			case "ALTER TABLE ":
				sql += " ADD x int"
			}
			assertRefused(t, inside(sql), sql)
		}
	}
	require.NoError(t, inside("SELECT ledger_id FROM effectonce_ledger"))
	for _, sql := range []string{
		"CREATE TABLE t (id int)", "DELETE FROM effectonce_ledger", "UPDATE effectonce_ledger SET ledger_id = gen_random_uuid()",
		"DELETE FROM effectonce_migrations", "SELECT * FROM public.tenants",
	} {
		assertRefused(t, inside(sql), sql)
	}
	assert.Equal(t, []bool{true}, column[bool](t, pool, `SELECT DISTINCT has_function_privilege($1, oid, 'EXECUTE')
		FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = $2)`, role, opts.Schema))
}

func assertRefused(t *testing.T, err error, what string) {
	t.Helper()
	var pgErr *pgconn.PgError
	if assert.ErrorAs(t, err, &pgErr, what) {
		assert.Equal(t, "42501", pgErr.Code, what)
	}
}

func TestGrantsNeedARole(t *testing.T) {
	t.Parallel()
	m := migrator(t, database(t), migrations.Options{})
	_, err := m.Grants("")
	require.Error(t, err)
	grants, err := m.Grants(`a"b`)
	require.NoError(t, err)
	assert.Contains(t, grants, `TO "a""b";`)
	assert.NotContains(t, grants, `"public"."idempotency_keys"`)
}
