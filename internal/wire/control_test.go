package wire_test

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/clock"
	"github.com/effectonce/effectonce/internal/wire"
)

func TestBlackHole(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn, idle := b.connect(), b.connect()
	b.BlackHole()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := conn.Exec(ctx, "INSERT INTO t VALUES (1)")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = pgx.Connect(ctx, b.dsn)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, b.Heal())
	require.NoError(t, idle.Ping(t.Context()), "an open connection has survived")
	b.connect()
}

func TestBlackHoleAtACommit(t *testing.T) {
	t.Parallel()
	everyCommit(t, func(t *testing.T, b *bench, _ *pgx.Conn, commit func(context.Context) error) {
		other := b.connect()
		rule := b.Arm(wire.Rule{Match: wire.Commit(), Action: wire.BlackHole})
		done := async(func() error { return commit(t.Context()) })
		comes(t, rule.Fired())
		require.NoError(t, other.Ping(t.Context()), "other connections work")
		assert.Zero(t, b.rows())
		pending(t, done)
		require.NoError(t, b.Heal())
		require.NoError(t, comes(t, done))
		assert.Equal(t, 1, b.rows())
	})
}

func TestDelayHoldsWhatIsUnderWay(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn := b.connect(app("delayed"))
	asked := b.Arm(wire.Rule{Match: wire.HasPrefix("INSERT")})
	answered := b.Arm(wire.Rule{Match: wire.Tag("INSERT 0 1"), Action: wire.HoldServer})
	b.SetDelay(time.Hour)
	done := async(func() error {
		_, err := conn.Exec(t.Context(), "INSERT INTO t VALUES (1)")
		return err
	})
	comes(t, asked.Fired())
	assert.Zero(t, b.rows(), "it is on its way")
	b.SetDelay(0)
	comes(t, answered.Fired())
	assert.Equal(t, 1, b.rows())
	b.SetDelay(time.Hour)
	answered.Release()
	pending(t, done)
	b.SetDelay(0)
	require.NoError(t, comes(t, done))
}

func TestDelayIsNeverShort(t *testing.T) {
	t.Parallel()
	const delay = 3 * time.Millisecond
	b := newBench(t)
	conn := b.connect()
	events := make(chan wire.Event, 2)
	b.Observe(func(e *wire.Event) { events <- *e })
	b.SetDelay(delay)
	_, err := conn.Exec(t.Context(), "SELECT 1")
	require.NoError(t, err)
	back := clock.Now()
	asked, answered := comes(t, events), comes(t, events)
	assert.GreaterOrEqual(t, answered.Time.Sub(asked.Time), delay)
	assert.GreaterOrEqual(t, back.Sub(answered.Time), delay)
}

func TestDelayOfOneBurst(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	delayed, other := b.connect(app("delayed")), b.connect()
	rule := b.Arm(wire.Rule{Match: wire.HasPrefix("SELECT 1"), App: "delayed", Action: wire.Delay, Delay: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := async(func() error {
		_, err := delayed.Exec(ctx, "SELECT 1")
		return err
	})
	comes(t, rule.Fired())
	_, err := other.Exec(t.Context(), "SELECT 1")
	require.NoError(t, err)
	pending(t, done)
	cancel()
	require.Error(t, comes(t, done))
}

func TestRefuseAndDown(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	open := b.connect()
	b.Refuse()
	_, err := pgx.Connect(t.Context(), b.dsn)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	b.Down()
	_, err = pgx.Connect(t.Context(), b.dsn)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	require.NoError(t, open.Ping(t.Context()))
	require.NoError(t, b.Heal())
	b.connect()
	b.Reset()
	require.ErrorIs(t, open.Ping(t.Context()), syscall.ECONNRESET)
}

func TestCloseLetsNothingHang(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]wire.Rule{
		"HoldServer":          {Action: wire.HoldServer},
		"HoldClient":          {Action: wire.HoldClient},
		"CutClientHoldServer": {Action: wire.CutClientHoldServer},
		"BlackHole":           {Action: wire.BlackHole},
		"Delay":               {Action: wire.Delay, Delay: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			tx := b.insert(b.connect())
			rule.Match = wire.Commit()
			armed := b.Arm(rule)
			done := async(func() error { return tx.Commit(t.Context()) })
			comes(t, armed.Fired())
			b.Close()
			require.Error(t, comes(t, done))
			comes(t, armed.Settled())
			b.Close()
			require.NoError(t, b.Heal(), "a closed proxy stays closed")
		})
	}
}

func TestContextEndsTheProxy(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	proxy, err := wire.Listen(ctx, "127.0.0.1:1", wire.Raw)
	require.NoError(t, err)
	cancel()
	proxy.Close()
	_, err = net.Dial("tcp", proxy.Addr())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func TestServerThatIsNotThere(t *testing.T) {
	t.Parallel()
	proxy, err := wire.Listen(t.Context(), "127.0.0.1:1", wire.Postgres)
	require.NoError(t, err)
	defer proxy.Close()
	_, err = pgx.Connect(t.Context(), "postgres://x@"+proxy.Addr()+"/x?sslmode=disable")
	require.Error(t, err)
	assert.Zero(t, proxy.Stats().Connections)
}

func TestThroughWantsAURL(t *testing.T) {
	t.Parallel()
	_, _, err := wire.Through(t.Context(), "host=/tmp password=secret")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "secret")
}
