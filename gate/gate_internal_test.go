package gate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/effectonce/effectonce/internal/clock"
)

// TestTheServersClockIsNeverAhead of what the server's answer said, at the time
// at which the answer was there.
func TestTheServersClockIsNeverAhead(t *testing.T) {
	t.Parallel()
	c := serverClock{zero: clock.Now()}
	began := clock.Now()
	c.set(1_000_000)
	require.LessOrEqual(t, c.now(), 1_000_000+clock.Since(began).Milliseconds())
}

// TestNobodyWaitsForADial: a server that swallows connections would gather all
// the probes behind the first one.
func TestNobodyWaitsForADial(t *testing.T) {
	t.Parallel()
	g, err := New(Config{Valkey: valkey.ClientOption{InitAddress: []string{"127.0.0.1:1"}}})
	require.NoError(t, err)
	g.dialing.Lock()
	_, err = g.connect()
	require.ErrorIs(t, err, errNotConnected)
}
