package wire_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/wire"
)

// TestStorm has everything happen at once, for the race detector and for
// what might hang.
func TestStorm(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var workers sync.WaitGroup
	for range 4 {
		workers.Add(1)
		go func() {
			defer workers.Done()
			for range 20 {
				transact(ctx, b.dsn)
			}
		}()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		workers.Wait()
	}()
	for i := 0; ; i++ {
		select {
		case <-done:
			require.NoError(t, ctx.Err(), "something hangs")
			b.connect()
			return
		default:
			disturb(t, b, i)
		}
	}
}

// transact does on a connection of its own what it can.
func transact(ctx context.Context, dsn string) {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return
	}
	defer func() {
		_ = conn.Close(ctx)
		<-conn.PgConn().CleanupDone()
	}()
	_ = batch(ctx, conn, "begin", "INSERT INTO t VALUES (1)")
	_, _ = conn.Exec(ctx, "SELECT $1::int", 1)
	_, _ = conn.Exec(ctx, "commit")
}

// disturb does the i-th of a round of faults, and ends it.
func disturb(t *testing.T, b *bench, i int) {
	actions := []wire.Action{wire.CutBefore, wire.CutAfter, wire.Reset, wire.Pass, wire.Delay}
	rule := b.Arm(wire.Rule{Match: wire.Commit(), Action: actions[i%len(actions)], Delay: time.Microsecond})
	defer rule.Disarm()
	stop := b.Observe(func(*wire.Event) {})
	defer stop()
	switch i % 7 {
	case 0:
		b.SetDelay(time.Duration(i%3) * 100 * time.Microsecond)
	case 1:
		b.BlackHole()
	case 2:
		b.Refuse()
	case 3:
		b.Cut()
	case 4:
		b.Reset()
	case 5:
		b.Record(i%2 == 0)
	}
	_, _ = b.Stats(), b.Conns()
	require.NoError(t, b.direct.Ping(t.Context()))
	require.NoError(t, b.Heal())
}
