package migrations_test

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/migrations"
)

func TestPrintedSQLMakesTheSchema(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string]migrations.Options{
		"platform only": {},
		"tenants":       {TenantsTable: "tenants"},
		"schema":        {Schema: "We\"ird\nSchema", TenantsTable: "public.tenants"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := database(t)
			m := migrator(t, pool, opts)
			var script, again strings.Builder
			require.NoError(t, m.Print(&script))
			require.NoError(t, m.Print(&again))
			assert.Equal(t, script.String(), again.String())
			assert.NotContains(t, script.String(), "+goose")
			assert.Equal(t, 1, strings.Count(script.String(), "0002_platform_index.sql: outside a transaction"))
			assert.Equal(t, 1, strings.Count(script.String(), "0001_platform_tables.sql: in one transaction"))
			run(t, pool, script.String())
			require.NoError(t, m.Validate(t.Context()))
			steps, err := m.Up(t.Context())
			require.NoError(t, err)
			assert.Empty(t, steps, "they are recorded as applied")
			_, err = m.Down(t.Context())
			require.NoError(t, err)
		})
	}
}

func TestPrintReportsItsWriter(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, migrator(t, database(t), migrations.Options{}).Print(failingWriter{}), assert.AnError)
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, assert.AnError }

// The files are run as they stand, by a tool that knows nothing of goose.
func TestFilesRunAsTheyAre(t *testing.T) {
	t.Parallel()
	pool := database(t)
	exec(t, pool, "CREATE SCHEMA mine; ALTER TABLE tenants SET SCHEMA mine")
	run(t, pool, "SET search_path = mine;\n"+strings.Join(migrations.RawFiles(), "\n"))
	m := migrator(t, pool, migrations.Options{Schema: "mine", TenantsTable: "tenants"})
	require.NoError(t, m.Validate(t.Context()))
	_, err := m.Up(t.Context())
	require.ErrorContains(t, err, "made without being recorded")
	require.NoError(t, m.Validate(t.Context()))
}

func TestFilesForOtherTools(t *testing.T) {
	t.Parallel()
	pool := database(t)
	require.NoError(t, fstest.TestFS(migrator(t, pool, migrations.Options{}).FS(), platformSteps...))
	both := migrator(t, pool, migrations.Options{TenantsTable: "app.tenants"})
	require.NoError(t, fstest.TestFS(both.FS(), slices.Concat(platformSteps, tenantSteps)...))
	for _, step := range both.Migrations() {
		assert.Equal(t, !strings.HasSuffix(step.Name, "_index.sql"), step.Transaction, step.Name)
		assert.NotEmpty(t, step.Up, step.Name)
		assert.NotEmpty(t, step.Down, step.Name)
		for _, statement := range slices.Concat(step.Up, step.Down) {
			assert.True(t, strings.HasSuffix(statement, ";"), statement)
			assert.NotContains(t, statement, "/*tenants*/")
		}
	}
}
