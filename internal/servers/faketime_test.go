package servers_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/servers"
)

// newClock skips the test on a machine that can't shift a server's clock.
func newClock(t *testing.T) *servers.Clock {
	t.Helper()
	clock, err := servers.NewClock()
	if errors.Is(err, servers.ErrNoFaketime) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, clock.Close()) })
	return clock
}

func TestPostgresTakesAClock(t *testing.T) {
	t.Parallel()
	clock := newClock(t)
	server, err := servers.StartPostgres(t.Context(), servers.PostgresOptions{Clock: clock})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop(context.WithoutCancel(t.Context()))) }()
	for range 2 {
		conn, err := pgx.Connect(t.Context(), server.URL())
		require.NoError(t, err)
		for _, shift := range []time.Duration{0, time.Hour, -90 * time.Minute, 0} {
			require.NoError(t, clock.Shift(shift))
			var now time.Time
			require.NoError(t, conn.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now))
			assert.WithinDuration(t, time.Now().Add(shift), now, 10*time.Minute)
		}
		require.NoError(t, conn.Close(t.Context()))
		require.NoError(t, clock.Shift(time.Hour))
		require.NoError(t, server.Restart(t.Context())) // and the clock is still its own
	}
}
