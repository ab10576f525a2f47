package migrations_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/migrations"
)

func TestUpThenNothingToDo(t *testing.T) {
	t.Parallel()
	pool := database(t)
	m := migrator(t, pool, migrations.Options{TenantsTable: "tenants"})
	steps, err := m.Up(t.Context())
	require.NoError(t, err)
	assert.Equal(t, slices.Concat(platformSteps, tenantSteps), names(steps))
	require.NoError(t, m.Validate(t.Context()))

	before := objects(t, pool)
	steps, err = m.Up(t.Context())
	require.NoError(t, err)
	assert.Empty(t, steps)
	assert.Equal(t, before, objects(t, pool))
	status, err := m.Status(t.Context())
	require.NoError(t, err)
	require.Len(t, status, 6)
	for _, step := range status {
		assert.True(t, step.Applied, step.Name)
		assert.WithinDuration(t, one[time.Time](t, pool, "SELECT now()"), step.AppliedAt, time.Minute, step.Name)
	}
}

func TestTenMigratorsApplyEachStepOnce(t *testing.T) {
	t.Parallel()
	pool := database(t)
	const count = 10
	migrators := make([]*migrations.Migrator, count)
	for i := range migrators {
		migrators[i] = migrator(t, pool, migrations.Options{Schema: "crowded", TenantsTable: "public.tenants"})
	}
	var (
		wg     sync.WaitGroup
		start  = make(chan struct{})
		steps  [count][]migrations.Step
		faults [count]error
	)
	for i, m := range migrators {
		wg.Add(1)
		go func() {
			defer wg.Done()
			<-start
			steps[i], faults[i] = m.Up(t.Context())
		}()
	}
	close(start)
	wg.Wait()
	var applied []string
	for i := range count {
		require.NoError(t, faults[i])
		applied = append(applied, names(steps[i])...)
	}
	assert.Equal(t, slices.Concat(platformSteps, tenantSteps), applied)
	assert.Equal(t, []int64{0, 1, 2, 3, 101, 102, 103},
		column[int64](t, pool, "SELECT version_id FROM crowded.effectonce_migrations ORDER BY id"))
	require.NoError(t, migrators[0].Validate(t.Context()))
}

func TestAnySchema(t *testing.T) {
	t.Parallel()
	pool := database(t)
	var wg sync.WaitGroup
	schemas := []string{"public", "ledger", `We"ird Schema`, "two\nlines", "UPPER", "a.b", "späße; --", `'`}
	for _, schema := range schemas {
		wg.Add(1)
		go func() {
			defer wg.Done()
			m, err := migrations.New(pool, migrations.Options{Schema: schema, TenantsTable: "public.tenants"})
			if !assert.NoError(t, err) {
				return
			}
			_, err = m.Up(t.Context())
			assert.NoError(t, err, schema)
			assert.NoError(t, m.Validate(t.Context()), schema)
		}()
	}
	wg.Wait()
	slices.Sort(schemas)
	assert.Equal(t, schemas, column[string](t, pool, `SELECT schemaname::text FROM pg_tables
		WHERE tablename = 'idempotency_keys' ORDER BY schemaname::text COLLATE "C"`))
}

func TestUpDownUp(t *testing.T) {
	t.Parallel()
	pool := database(t)
	before := objects(t, pool)
	m := migrated(t, pool, migrations.Options{TenantsTable: "tenants"})
	identity := one[string](t, pool, "SELECT ledger_id::text FROM effectonce_ledger")

	// The tenants' steps are taken back though the options don't name them.
	back, err := migrator(t, pool, migrations.Options{}).Down(t.Context())
	require.NoError(t, err)
	want := slices.Concat(platformSteps, tenantSteps)
	slices.Reverse(want)
	assert.Equal(t, want, names(back))
	assert.Equal(t, before, objects(t, pool), "nothing is left")
	back, err = m.Down(t.Context())
	require.NoError(t, err)
	assert.Empty(t, back)

	steps, err := m.Up(t.Context())
	require.NoError(t, err)
	assert.Len(t, steps, 6)
	require.NoError(t, m.Validate(t.Context()))
	assert.NotEqual(t, identity, one[string](t, pool, "SELECT ledger_id::text FROM effectonce_ledger"))
}

func TestDownToLeavesThePlatforms(t *testing.T) {
	t.Parallel()
	pool := database(t)
	m := migrated(t, pool, migrations.Options{TenantsTable: "tenants"})
	back, err := m.DownTo(t.Context(), 100)
	require.NoError(t, err)
	assert.Equal(t, []string{tenantSteps[2], tenantSteps[1], tenantSteps[0]}, names(back))
	require.NoError(t, migrator(t, pool, migrations.Options{}).Validate(t.Context()))
	status, err := m.Status(t.Context())
	require.NoError(t, err)
	for i, step := range status {
		assert.Equal(t, i < 3, step.Applied, step.Name)
	}
}

func TestStepsOfANewerReleaseAreLeftAlone(t *testing.T) {
	t.Parallel()
	pool := database(t)
	m := migrated(t, pool, migrations.Options{})
	exec(t, pool, "INSERT INTO effectonce_migrations (version_id, is_applied) VALUES (99, true)")
	before := objects(t, pool)
	_, err := m.Down(t.Context())
	require.ErrorContains(t, err, "step 99 was applied by a newer release")
	assert.Equal(t, before, objects(t, pool))
	_, err = m.Up(t.Context())
	require.NoError(t, err)
}

func TestTenantsNamedLater(t *testing.T) {
	t.Parallel()
	pool := database(t)
	platform := migrator(t, pool, migrations.Options{})
	steps, err := platform.Up(t.Context())
	require.NoError(t, err)
	assert.Equal(t, platformSteps, names(steps))
	assert.Empty(t, column[string](t, pool, "SELECT tablename::text FROM pg_tables WHERE tablename LIKE 'idempotency%'"))

	both := migrator(t, pool, migrations.Options{TenantsTable: "tenants"})
	require.Error(t, both.Validate(t.Context()))
	steps, err = both.Up(t.Context())
	require.NoError(t, err)
	assert.Equal(t, tenantSteps, names(steps))
	require.NoError(t, both.Validate(t.Context()))

	// A platform's step that is younger than the tenants' is applied all the same.
	exec(t, pool, `DELETE FROM effectonce_migrations WHERE version_id = 2; DROP INDEX platform_idempotency_keys_expires_at_idx`)
	steps, err = both.Up(t.Context())
	require.NoError(t, err)
	assert.Equal(t, platformSteps[1:2], names(steps))
	require.NoError(t, both.Validate(t.Context()))
}

func TestTenantsTableMustBeThere(t *testing.T) {
	t.Parallel()
	pool := database(t)
	exec(t, pool, `CREATE TABLE small (id integer PRIMARY KEY);
		CREATE TABLE loose (id bigint); CREATE INDEX ON loose (id);
		CREATE TABLE partly (id bigint, gone boolean); CREATE UNIQUE INDEX ON partly (id) WHERE NOT gone;
		CREATE TABLE pair (id bigint, b bigint, PRIMARY KEY (id, b));
		CREATE TABLE other (key bigint PRIMARY KEY);
		CREATE VIEW seen AS SELECT * FROM tenants`)
	before := objects(t, pool)
	for name, want := range map[string]string{
		"public.missing": `"public"."missing" does not exist: create it first`,
		"nowhere.t":      `"nowhere"."t" does not exist`,
		"tenants":        `"ledger"."tenants" does not exist`, // looked for in the schema
		"public.seen":    "is not a table",
		"public.small":   "no column id of type bigint",
		"public.other":   "no column id of type bigint",
		"public.loose":   "no primary key or unique constraint on id alone",
		"public.partly":  "no primary key or unique constraint on id alone",
		"public.pair":    "no primary key or unique constraint on id alone",
	} {
		m := migrator(t, pool, migrations.Options{Schema: "ledger", TenantsTable: name})
		steps, err := m.Up(t.Context())
		require.ErrorContains(t, err, "Options.TenantsTable", name)
		require.ErrorContains(t, err, want, name)
		assert.Empty(t, steps)
		assert.Equal(t, before, objects(t, pool), "nothing is half applied")
		require.ErrorContains(t, m.Validate(t.Context()), want)
	}
}

func TestNewChangesNothing(t *testing.T) {
	t.Parallel()
	pool := database(t)
	before := objects(t, pool)
	m := migrator(t, pool, migrations.Options{Schema: "ledger", TenantsTable: "public.tenants"})
	status, err := m.Status(t.Context())
	require.NoError(t, err)
	for _, step := range status {
		assert.Equal(t, migrations.Step{Version: step.Version, Name: step.Name}, step)
	}
	require.Error(t, m.Validate(t.Context()))
	assert.Equal(t, before, objects(t, pool))
}

func TestPoolsHooksAreRun(t *testing.T) {
	t.Parallel()
	role := role(t)
	pool := database(t)
	exec(t, pool, fmt.Sprintf("CREATE SCHEMA owned AUTHORIZATION %s; GRANT REFERENCES ON tenants TO %[1]s", role))
	var before, after int
	var fault error
	hooked := pgxPool(t, pool, func(c *pgxpool.Config) {
		c.ConnConfig.Database = "nowhere"
		c.BeforeConnect = func(_ context.Context, conn *pgx.ConnConfig) error {
			before++
			conn.Database = pool.Config().ConnConfig.Database
			return nil
		}
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			after++
			_, err := conn.Exec(ctx, "SET ROLE "+role)
			return cmp.Or(fault, err)
		}
	})
	m := migrator(t, hooked, migrations.Options{Schema: "owned", TenantsTable: "public.tenants"})
	fault = assert.AnError
	_, err := m.Up(t.Context())
	require.ErrorIs(t, err, assert.AnError)
	fault = nil
	_, err = m.Up(t.Context())
	require.NoError(t, err)
	assert.Equal(t, []int{2, 2}, []int{before, after})
	assert.Zero(t, hooked.Stat().TotalConns(), "the pool itself isn't used")
	assert.Equal(t, []string{role}, column[string](t, pool, "SELECT DISTINCT tableowner::text FROM pg_tables WHERE schemaname = 'owned'"))
}

func TestRightsThatLackAreTold(t *testing.T) {
	t.Parallel()
	role := role(t)
	pool := database(t)
	exec(t, pool, "CREATE SCHEMA locked")
	poor := as(t, pool, role)
	for _, schema := range []string{"new", "locked"} {
		_, err := migrator(t, poor, migrations.Options{Schema: schema}).Up(t.Context())
		require.ErrorContains(t, err, "the migrating role needs CREATE", schema)
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr)
	}
	exec(t, pool, "GRANT ALL ON SCHEMA locked TO "+role)
	_, err := migrator(t, poor, migrations.Options{Schema: "locked", TenantsTable: "public.tenants"}).Up(t.Context())
	require.ErrorContains(t, err, "GRANT REFERENCES")
}
