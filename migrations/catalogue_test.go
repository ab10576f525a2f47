package migrations_test

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/migrations"
)

var update = flag.Bool("update", false, "write the catalogue files anew")

// reference is the DDL of the two tables, written by hand from the design's text.
// The names of the CHECKs, the primary keys and the foreign key are those that
// PostgreSQL gives by itself; the unique constraints' are told to it.
const reference = `
CREATE TABLE idempotency_keys (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	tenant_id bigint NOT NULL REFERENCES tenants,
	idempotency_key bytea NOT NULL CHECK (octet_length(idempotency_key) = 32),
	request_fingerprint bytea NOT NULL CHECK (octet_length(request_fingerprint) = 32),
	status text DEFAULT 'processing' NOT NULL
		CHECK (status IN ('processing', 'completed', 'failed_retryable', 'failed_permanent')),
	attempt integer DEFAULT 1 NOT NULL CHECK (attempt > 0),
	outcome jsonb DEFAULT '{}'::jsonb NOT NULL
		CHECK (jsonb_typeof(outcome) = 'object' AND octet_length(outcome::text) <= 4096),
	expires_at timestamptz NOT NULL,
	created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
	updated_at timestamptz DEFAULT clock_timestamp() NOT NULL,
	CHECK (status <> 'processing' OR outcome = '{}'),
	CONSTRAINT idempotency_keys_owner_key UNIQUE (tenant_id, idempotency_key)
);
CREATE TABLE platform_idempotency_keys (
	id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	idempotency_key bytea NOT NULL CHECK (octet_length(idempotency_key) = 32),
	request_fingerprint bytea NOT NULL CHECK (octet_length(request_fingerprint) = 32),
	status text DEFAULT 'processing' NOT NULL
		CHECK (status IN ('processing', 'completed', 'failed_retryable', 'failed_permanent')),
	attempt integer DEFAULT 1 NOT NULL CHECK (attempt > 0),
	outcome jsonb DEFAULT '{}'::jsonb NOT NULL
		CHECK (jsonb_typeof(outcome) = 'object' AND octet_length(outcome::text) <= 4096),
	expires_at timestamptz NOT NULL,
	created_at timestamptz DEFAULT clock_timestamp() NOT NULL,
	updated_at timestamptz DEFAULT clock_timestamp() NOT NULL,
	CHECK (status <> 'processing' OR outcome = '{}'),
	CONSTRAINT platform_idempotency_keys_key UNIQUE (idempotency_key)
);`

func TestTablesAreThoseOfTheDesign(t *testing.T) {
	t.Parallel()
	pool := database(t)
	exec(t, pool, "CREATE SCHEMA reference")
	exec(t, pool, in("reference", tenantsDDL+";"+reference))
	exec(t, pool, "CREATE SCHEMA made")
	exec(t, pool, in("made", tenantsDDL))
	migrated(t, pool, migrations.Options{Schema: "made", TenantsTable: "tenants"})

	for _, name := range []string{"idempotency_keys", "platform_idempotency_keys"} {
		want, got := described(t, pool, "reference", name), described(t, pool, "made", name)
		assert.Equal(t, want, got, name)
	}
}

// described returns a table's columns in order, and its constraints, as the
// catalogue tells them.
func described(t *testing.T, pool *pgxpool.Pool, schema, table string) []string {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), "SET LOCAL search_path = "+quote(schema))
	require.NoError(t, err)
	rows, err := tx.Query(t.Context(), `
		SELECT * FROM (
			SELECT format('%s %s %s null=%s default=%s identity=%s generated=%s storage=%s', a.attnum, a.attname,
			              format_type(a.atttypid, a.atttypmod), NOT a.attnotnull, pg_get_expr(d.adbin, d.adrelid),
			              a.attidentity, a.attgenerated, a.attstorage)
			  FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
			 WHERE a.attrelid = $1::text::regclass AND a.attnum > 0
			 ORDER BY a.attnum) columns
		UNION ALL SELECT * FROM (
			SELECT format('constraint %s %s %s', c.contype, c.conname, pg_get_constraintdef(c.oid))
			  FROM pg_constraint c
			 WHERE c.conrelid = $1::text::regclass AND c.contype IN ('c', 'p', 'u', 'f')
			 ORDER BY c.conname) constraints`, table)
	require.NoError(t, err)
	var all []string
	for rows.Next() {
		var line string
		require.NoError(t, rows.Scan(&line))
		all = append(all, line)
	}
	require.NoError(t, rows.Err())
	require.NotEmpty(t, all)
	return all
}

// The files that Validate compares with are what the steps make. After a change
// of the steps: go test ./migrations -run TestCatalogueFiles -update.
func TestCatalogueFiles(t *testing.T) {
	t.Parallel()
	pool := database(t)
	db := stdlib.OpenDBFromPool(pool)
	defer func() { require.NoError(t, db.Close()) }()
	written := func(schema, tenants string) []string {
		m := migrated(t, pool, migrations.Options{Schema: schema, TenantsTable: tenants})
		tables := column[string](t, pool, `SELECT tablename FROM pg_tables
			WHERE schemaname = $1 AND tablename <> 'effectonce_migrations'`, schema)
		got, err := m.Catalogue(t.Context(), db, tables)
		require.NoError(t, err)
		var lines []string
		for object, definition := range got {
			lines = append(lines, object+": "+definition+"\n")
		}
		slices.Sort(lines)
		return lines
	}
	platform := written("platform", "")
	both := written("tenant", "public.tenants")
	tenant := slices.DeleteFunc(both, func(line string) bool { return slices.Contains(platform, line) })
	for name, lines := range map[string][]string{"catalogue_platform.txt": platform, "catalogue_tenant.txt": tenant} {
		text := strings.Join(lines, "")
		if *update {
			require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
			continue
		}
		file, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.Equal(t, string(file), text, "%s: run this test with -update", name)
	}
}
