package migrations_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/migrations"
)

func TestOptionsFaultsAreToldTogether(t *testing.T) {
	t.Parallel()
	_, err := migrations.New(nil, migrations.Options{
		Schema:       "pg_mine",
		TenantsTable: "a.b.c",
		LockTimeout:  -time.Second,
		LockWait:     -time.Second,
	})
	require.Error(t, err)
	for _, want := range []string{"pool", "Options.Schema", "Options.TenantsTable", "Options.LockTimeout", "Options.LockWait"} {
		assert.ErrorContains(t, err, want)
	}
}

func TestSchemaNames(t *testing.T) {
	t.Parallel()
	pool := itest.Pool(t, itest.Database(t))
	for name, ok := range map[string]bool{
		"":                       true,
		"public":                 true,
		`We"ird Schema`:          true,
		"späße":                  true,
		strings.Repeat("a", 63):  true,
		strings.Repeat("a", 64):  false,
		strings.Repeat("ä", 32):  false,
		"nul\x00":                false,
		"\xff":                   false,
		"pg_catalog":             false,
		"information_schema":     false,
		"$user":                  false,
		"semicolon; drop schema": true,
	} {
		_, err := migrations.New(pool, migrations.Options{Schema: name})
		assert.Equal(t, ok, err == nil, "%q: %v", name, err)
	}
}

func TestTenantsNamesAreReadAsSQL(t *testing.T) {
	t.Parallel()
	pool := itest.Pool(t, itest.Database(t))
	for given, want := range map[string]string{
		"tenants":               `"tenants"`,
		"Tenants":               `"tenants"`,
		`"Tenants"`:             `"Tenants"`,
		"App.Tenants":           `"app"."tenants"`,
		`"My App"."Ten""ants"`:  `"My App"."Ten""ants"`,
		`app."a.b"`:             `"app"."a.b"`,
		"kundé.t$1":             `"kundé"."t$1"`,
		"a.b.c":                 "",
		"a..b":                  "",
		"a.":                    "",
		".a":                    "",
		`"a`:                    "",
		`""`:                    "",
		"a b":                   "",
		"1a":                    "",
		"a;b":                   "",
		"a/*":                   "",
		strings.Repeat("a", 64): "",
	} {
		m, err := migrations.New(pool, migrations.Options{TenantsTable: given})
		if want == "" {
			assert.ErrorContains(t, err, "Options.TenantsTable", given)
			continue
		}
		if !assert.NoError(t, err, given) {
			continue
		}
		for _, step := range m.Migrations() {
			if step.Name == tenantSteps[0] {
				assert.Contains(t, strings.Join(step.Up, "\n"), "REFERENCES "+want+" (id)", given)
			}
		}
	}
}

func TestOldServersAreRefused(t *testing.T) {
	t.Parallel()
	require.NoError(t, migrations.ServerFault(140000, "14.0"))
	require.NoError(t, migrations.ServerFault(180001, "18.1"))
	require.ErrorContains(t, migrations.ServerFault(130023, "13.23"), "PostgreSQL 13.23: 14 or newer is needed")
}
