package transfer_test

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/samples/transfer"
)

func TestMain(m *testing.M) { os.Exit(itest.Main(m)) }

// accounts makes a database with the sample's tables and returns its DSN too.
func accounts(t *testing.T) (*pgxpool.Pool, string) {
	t.Helper()
	dsn := itest.Database(t)
	pool := itest.Pool(t, dsn)
	require.NoError(t, transfer.Setup(t.Context(), pool))
	return pool, dsn
}

func balance(t *testing.T, pool *pgxpool.Pool, id string) (n int64) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT balance FROM accounts WHERE id = $1", id).Scan(&n))
	return n
}

func entries(t *testing.T, pool *pgxpool.Pool) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT count(*) FROM transfers").Scan(&n))
	return n
}
