package wire_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/wire"
)

// BenchmarkRoundTrip shows what the proxy costs, and how exact its delay is.
func BenchmarkRoundTrip(b *testing.B) {
	dsn := itest.Database(b)
	proxy, through, err := wire.Through(b.Context(), dsn)
	require.NoError(b, err)
	defer proxy.Close()
	for name, c := range map[string]struct {
		dsn   string
		delay time.Duration
	}{
		"direct": {dsn, 0}, "proxy": {through, 0}, "proxy with 1 ms": {through, 500 * time.Microsecond},
	} {
		b.Run(name, func(b *testing.B) {
			conn, err := pgx.Connect(b.Context(), c.dsn)
			require.NoError(b, err)
			defer func() { _ = conn.Close(b.Context()) }()
			proxy.SetDelay(c.delay)
			defer proxy.SetDelay(0)
			var n int
			for b.Loop() {
				require.NoError(b, conn.QueryRow(b.Context(), "SELECT $1::int", 1).Scan(&n))
			}
		})
	}
}
