package itest_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/servers"
)

func TestMain(m *testing.M) { os.Exit(itest.Main(m)) }

func TestDatabasesAreApart(t *testing.T) {
	t.Parallel()
	one, other := itest.Pool(t, itest.Database(t)), itest.Pool(t, itest.Database(t))
	_, err := one.Exec(t.Context(), "CREATE TABLE mine (id int)")
	require.NoError(t, err)
	var there bool
	require.NoError(t, other.QueryRow(t.Context(), "SELECT to_regclass('mine') IS NOT NULL").Scan(&there))
	assert.False(t, there)
}

func TestDatabaseIsDroppedThoughSomebodyIsConnected(t *testing.T) {
	t.Parallel()
	var dsn, name string
	admin := itest.Pool(t, itest.Database(t))
	t.Run("inner", func(t *testing.T) {
		dsn = itest.Database(t)
		pool, err := pgxpool.New(t.Context(), dsn)
		require.NoError(t, err)
		t.Cleanup(pool.Close) // runs before the drop, the connection above does not
		config, err := pgxpool.ParseConfig(dsn)
		require.NoError(t, err)
		name = config.ConnConfig.Database
		require.NoError(t, pool.Ping(t.Context()))
	})
	var left int
	require.NoError(t, admin.QueryRow(t.Context(),
		"SELECT count(*) FROM pg_database WHERE datname = $1", name).Scan(&left))
	assert.Zero(t, left)
}

func TestPoolIsConfigured(t *testing.T) {
	t.Parallel()
	pool := itest.Pool(t, itest.Database(t), func(c *pgxpool.Config) { c.MaxConns = 3 })
	assert.EqualValues(t, 3, pool.Stat().MaxConns())
}

func TestValkeyAnswers(t *testing.T) {
	t.Parallel()
	address := itest.Valkey(t)
	assert.Equal(t, address, itest.Valkey(t))
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{itest.Valkey(t)}})
	require.NoError(t, err)
	defer client.Close()
	require.NoError(t, client.Do(t.Context(), client.B().Ping().Build()).Error())
}

func TestTemporalIsShared(t *testing.T) {
	t.Parallel()
	address := itest.Temporal(t)
	assert.Equal(t, address, itest.Temporal(t))
}

func TestPrivateServersAreOurs(t *testing.T) {
	t.Parallel()
	assert.True(t, itest.PrivatePostgres(t, servers.PostgresOptions{}).Owned())
	assert.True(t, itest.PrivateValkey(t, servers.ValkeyOptions{}).Owned())
	assert.True(t, itest.PrivateTemporal(t, servers.TemporalOptions{}).Owned())
}
