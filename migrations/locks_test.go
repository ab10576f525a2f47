package migrations_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/migrations"
)

const invalidIndexes = `SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE NOT i.indisvalid`

func TestInterruptedIndexIsReplaced(t *testing.T) {
	t.Parallel()
	for name, interrupt := range map[string]func(t *testing.T, pool *pgxpool.Pool, cancel func()){
		"cancelled": func(_ *testing.T, _ *pgxpool.Pool, cancel func()) { cancel() },
		"session lost": func(t *testing.T, pool *pgxpool.Pool, _ func()) {
			exec(t, pool, "SELECT pg_terminate_backend(pid) FROM pg_stat_progress_create_index WHERE datname = current_database()")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := database(t)
			var sessions int
			m := migrator(t, pgxPool(t, pool, func(c *pgxpool.Config) {
				c.AfterConnect = func(context.Context, *pgx.Conn) error {
					sessions++
					return nil
				}
			}), migrations.Options{})
			old := snapshot(t, pool)

			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			type result struct {
				steps []migrations.Step
				err   error
			}
			done := make(chan result, 1)
			go func() {
				steps, err := m.Up(ctx)
				done <- result{steps, err}
			}()
			require.Eventually(t, func() bool {
				return one[bool](t, pool, `SELECT EXISTS (SELECT FROM pg_stat_progress_create_index
					WHERE datname = current_database() AND phase LIKE 'waiting%')`)
			}, time.Minute, 10*time.Millisecond)
			interrupt(t, pool, cancel)
			first := <-done
			require.ErrorContains(t, first.err, "0002_platform_index.sql")
			assert.Equal(t, 1, sessions, "it doesn't go on in a session without the lock")
			assert.Equal(t, platformSteps[:1], names(first.steps))
			assert.Equal(t, []int64{0, 1}, column[int64](t, pool, "SELECT version_id FROM effectonce_migrations ORDER BY id"))
			assert.Equal(t, []string{"platform_idempotency_keys_expires_at_idx"}, column[string](t, pool, invalidIndexes))
			require.ErrorContains(t, m.Validate(t.Context()), "INVALID")

			require.NoError(t, old.Rollback(t.Context()))
			steps, err := m.Up(t.Context())
			require.NoError(t, err)
			assert.Equal(t, platformSteps[1:], names(steps))
			assert.Empty(t, column[string](t, pool, invalidIndexes))
			require.NoError(t, m.Validate(t.Context()))
		})
	}
}

// snapshot opens a transaction that a concurrent index build has to wait for.
func snapshot(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	_, err = tx.Exec(t.Context(), "SELECT 1")
	require.NoError(t, err)
	return tx
}

func TestInvalidLeftoversOfEveryIndexAreReplaced(t *testing.T) {
	t.Parallel()
	pool := database(t)
	m := migrated(t, pool, migrations.Options{TenantsTable: "tenants"})
	exec(t, pool, `INSERT INTO tenants SELECT 1;
		INSERT INTO platform_idempotency_keys (idempotency_key, request_fingerprint, expires_at)
			SELECT sha256(n::text::bytea), sha256('r'), now() FROM generate_series(1, 2) n;
		INSERT INTO idempotency_keys (tenant_id, idempotency_key, request_fingerprint, expires_at)
			SELECT 1, sha256(n::text::bytea), sha256('r'), now() FROM generate_series(1, 2) n;
		DELETE FROM effectonce_migrations WHERE version_id IN (2, 102)`)
	for index, table := range map[string]string{
		"platform_idempotency_keys_expires_at_idx":  "platform_idempotency_keys",
		"idempotency_keys_expires_at_idx":           "idempotency_keys",
		"idempotency_keys_tenant_id_expires_at_idx": "idempotency_keys",
	} {
		exec(t, pool, "DROP INDEX "+index)
		// Two rows with one attempt: the unique build fails and leaves its index behind.
		_, err := pool.Exec(t.Context(), fmt.Sprintf("CREATE UNIQUE INDEX CONCURRENTLY %s ON %s (attempt)", index, table))
		require.Error(t, err)
	}
	require.Len(t, column[string](t, pool, invalidIndexes), 3)
	steps, err := m.Up(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []string{platformSteps[1], tenantSteps[1]}, names(steps))
	require.NoError(t, m.Validate(t.Context()))
}

func TestIndexStepsRaiseAndRestoreLockTimeout(t *testing.T) {
	t.Parallel()
	pool := database(t)
	conn, err := pgx.ConnectConfig(t.Context(), pool.Config().ConnConfig)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	setting := func() string {
		var value string
		require.NoError(t, conn.QueryRow(t.Context(), "SHOW lock_timeout").Scan(&value))
		return value
	}
	all := migrator(t, pool, migrations.Options{TenantsTable: "tenants"}).Migrations()
	apply := func(statements []string) (raised int) {
		for _, statement := range statements {
			if strings.Contains(statement, "CONCURRENTLY") {
				assert.Equal(t, "15min", setting())
				raised++
			}
			exec(t, conn, statement)
		}
		assert.Equal(t, "1234ms", setting())
		return raised
	}
	exec(t, conn, "SET lock_timeout = '1234ms'")
	var raised int
	for _, step := range all {
		raised += apply(step.Up)
	}
	assert.Equal(t, 6, raised, "three indexes dropped and made")
	slices.Reverse(all)
	for _, step := range all {
		raised += apply(step.Down)
	}
	assert.Equal(t, 9, raised)
}

func TestStepWaitsForLocksNoLongerThanLockTimeout(t *testing.T) {
	t.Parallel()
	pool := database(t)
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	exec(t, tx, "INSERT INTO tenants VALUES (1)") // bars the foreign key's lock
	m := migrator(t, pool, migrations.Options{TenantsTable: "tenants", LockTimeout: 20 * time.Millisecond})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	steps, err := m.Up(ctx)
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	assert.Equal(t, "55P03", pgErr.Code)
	require.ErrorContains(t, err, "Options.LockTimeout")
	require.ErrorContains(t, err, tenantSteps[0])
	assert.Equal(t, platformSteps, names(steps))
	assert.Empty(t, column[string](t, pool, "SELECT tablename::text FROM pg_tables WHERE tablename LIKE 'idempotency%'"))

	require.NoError(t, tx.Commit(t.Context()))
	steps, err = m.Up(t.Context())
	require.NoError(t, err)
	assert.Equal(t, tenantSteps, names(steps))
}

func TestAnotherMigratorIsWaitedForNoLongerThanLockWait(t *testing.T) {
	t.Parallel()
	pool := database(t)
	m := migrator(t, pool, migrations.Options{Schema: "ledger", LockWait: time.Nanosecond})
	holder, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer holder.Release()
	exec(t, holder, "SELECT pg_advisory_lock($1)", migrations.LockID("ledger"))
	before := objects(t, pool)
	_, err = m.Up(t.Context())
	require.ErrorContains(t, err, `another migrator of schema "ledger" was at work`)
	_, err = m.Down(t.Context())
	require.ErrorContains(t, err, "Options.LockWait")
	assert.Equal(t, before, objects(t, pool))

	// Another schema's migrator isn't barred.
	migrated(t, pool, migrations.Options{Schema: "other"})
	exec(t, holder, "SELECT pg_advisory_unlock_all()")
	_, err = m.Up(t.Context())
	require.NoError(t, err)
	assert.Empty(t, column[int64](t, pool, "SELECT objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"))
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	pool := database(t)
	holder, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer holder.Release()
	exec(t, holder, "SELECT pg_advisory_lock($1)", migrations.LockID("public"))
	defer exec(t, holder, "SELECT pg_advisory_unlock_all()")
	m := migrator(t, pool, migrations.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := m.Up(ctx)
		done <- err
	}()
	require.Eventually(t, func() bool {
		return one[bool](t, pool, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%pg_try_advisory_lock($1)')")
	}, time.Minute, 10*time.Millisecond)
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}
