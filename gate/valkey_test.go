package gate_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/servers"
	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/ledger"
)

// setupPrivate is a bundle with a Valkey server of the test's own.
func setupPrivate(t *testing.T, change func(*gate.Config)) (*bundle, *servers.Valkey) {
	t.Helper()
	server := itest.PrivateValkey(t, servers.ValkeyOptions{})
	return setup(t, func(o *options) { o.valkey, o.gate = server.Addr(), change }), server
}

func probesAtOnce(c *gate.Config) { c.Probe = time.Millisecond }
func probesNever(c *gate.Config)  { c.Probe = time.Hour }

// TestValkeyFails at every step of an execution, in every way: PostgreSQL
// decides, and the outcome is the same. The gate is back when Valkey is.
func TestValkeyFails(t *testing.T) {
	t.Parallel()
	ways := map[string]struct {
		fail func(context.Context, *servers.Valkey) error
		heal func(context.Context, *servers.Valkey) error
	}{
		"killed":    {func(_ context.Context, v *servers.Valkey) error { return v.Kill() }, func(ctx context.Context, v *servers.Valkey) error { return v.Restart(ctx) }},
		"restarted": {func(ctx context.Context, v *servers.Valkey) error { return v.Restart(ctx) }, nil},
		"stopped":   {func(_ context.Context, v *servers.Valkey) error { return v.Pause() }, func(_ context.Context, v *servers.Valkey) error { return v.Resume() }},
		"flushed": {func(ctx context.Context, v *servers.Valkey) error {
			client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{v.Addr()}, ForceSingleClient: true, DisableCache: true})
			if err != nil {
				return err
			}
			defer client.Close()
			return client.Do(ctx, client.B().Flushall().Build()).Error()
		}, nil},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, server := setupPrivate(t, func(c *gate.Config) {
				probesAtOnce(c)
				c.Timeout = 300 * time.Millisecond // is waited for where the server is stopped
			})
			for step, at := range map[string]struct {
				proxy *wire.Proxy
				match wire.Match
			}{
				"before the gate":   {b.resp, wire.Command("SET", "")},
				"after the gate":    {b.resp, wire.AnswerTo(wire.Command("SET", ""))},
				"in the body":       {b.pg, wire.HasPrefix("insert into effects")},
				"before COMMIT":     {b.pg, wire.Commit()},
				"after COMMIT":      {b.pg, wire.AnswerTo(wire.Commit())},
				"during the copy":   {b.resp, wire.Command("EVAL", "")},
				"after the copy":    {b.resp, wire.AnswerTo(wire.Command("EVAL", ""))},
				"before the replay": {nil, nil},
			} {
				var failure error
				fail := func(*wire.Event) { failure = way.fail(context.WithoutCancel(t.Context()), server) }
				failed := make(<-chan struct{})
				if at.proxy != nil {
					failed = at.proxy.Arm(wire.Rule{Match: at.match, Do: fail}).Fired()
				}
				req := patient(business(step))
				r, err := b.runner.Execute(t.Context(), req, writes(step))
				require.NoError(t, err, step)
				require.Equal(t, ledger.Executed, r.Source, step)
				if at.proxy != nil {
					<-failed
				} else {
					fail(nil)
				}
				require.NoError(t, failure)
				r, err = b.runner.Execute(t.Context(), req, never(t))
				require.NoError(t, err, step)
				require.Equal(t, outcome("did "+step), r.Outcome)
				require.Equal(t, 1, b.effects(t, step))
				if way.heal != nil {
					require.NoError(t, way.heal(t.Context(), server))
				}
				b.replayed(t, business(step))
			}
		})
	}
}

// TestAStalledServerCostsOneTimeout: whoever asks before the breaker opens waits
// once; behind it nobody asks.
func TestAStalledServerCostsOneTimeout(t *testing.T) {
	t.Parallel()
	for name, stall := range map[string]func(*bundle, *servers.Valkey) error{
		"stopped":    func(_ *bundle, v *servers.Valkey) error { return v.Pause() },
		"black hole": func(b *bundle, _ *servers.Valkey) error { b.resp.BlackHole(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, server := setupPrivate(t, func(c *gate.Config) {
				probesNever(c)
				c.Timeout = 500 * time.Millisecond
			})
			b.runs(t, business("before"), writes("before"), ledger.Executed)
			b.settle(t)
			require.NoError(t, stall(b, server))
			b.resp.ResetStats()

			b.runs(t, business("a"), writes("a"), ledger.Executed)
			require.Equal(t, "timeout", b.attribute(t, gate.AttrDegraded).AsString())
			require.Contains(t, b.events(t), "effectonce.breaker_opened")
			asked := b.resp.Stats().Executed
			for i := range 20 {
				name := fmt.Sprint(i)
				b.runs(t, business(name), writes(name), ledger.Executed)
				require.Equal(t, "breaker_open", b.attribute(t, gate.AttrDegraded).AsString())
				require.Equal(t, []string{"effectonce.copy_failed"}, b.events(t))
				b.runs(t, business(name), never(t), ledger.LedgerReplay)
			}
			require.Equal(t, asked, b.resp.Stats().Executed, "nobody asked")
			require.EqualValues(t, 82, b.gate.Dropped(), "each copy, and the token that it would have replaced")
			if name == "stopped" {
				require.NoError(t, server.Resume())
			} else {
				require.NoError(t, b.resp.Heal())
			}
		})
	}
}

// TestManyCallersWaitForAStallTogether: none of them waits twice, and none
// beyond its time because another one waits.
func TestManyCallersWaitForAStallTogether(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *options) {
		o.gate = func(c *gate.Config) {
			probesNever(c)
			c.Timeout = 300 * time.Millisecond
		}
	})
	b.resp.BlackHole()
	var group sync.WaitGroup
	for range 2000 { // more than the client's queue has places
		group.Add(1)
		go func() {
			defer group.Done()
			_, err := b.gate.Enter(t.Context(), "a", gate.NewToken(false, 1), time.Minute)
			assert.True(t, errors.Is(err, gate.ErrTimeout) || errors.Is(err, gate.ErrOpen), "%v", err)
			_, err = b.gate.Enter(t.Context(), "a", gate.NewToken(false, 1), time.Minute)
			assert.ErrorIs(t, err, gate.ErrOpen)
		}()
	}
	group.Wait()
	require.NoError(t, b.resp.Heal())
}

// TestTheProbeIsOne: behind a half-open breaker nobody else asks.
func TestTheProbeIsOne(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *options) { o.gate = probesAtOnce })
	b.resp.Down()
	b.resp.Cut()
	enter := func(name string) error {
		_, err := b.gate.Enter(t.Context(), name, gate.NewToken(false, 1), time.Minute)
		return err
	}
	require.Error(t, enter("opens"))
	require.NoError(t, b.resp.Heal())
	held := b.resp.Arm(wire.Rule{Match: wire.Command("SET", b.prefix+"probe"), Action: wire.HoldClient})
	probe := make(chan error, 1)
	go func() {
		err := error(gate.ErrOpen)
		for errors.Is(err, gate.ErrOpen) {
			err = enter("probe")
		}
		probe <- err
	}()
	<-held.Fired()
	for range 10 {
		require.ErrorIs(t, enter("another"), gate.ErrOpen)
	}
	held.Release()
	require.NoError(t, <-probe)
	require.NoError(t, enter("closed"))
}

// TestACallerInAHurry neither speaks against the server nor breaks the
// connection that others use.
func TestACallerInAHurry(t *testing.T) {
	t.Parallel()
	for name, hurry := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"canceled": context.WithCancel,
		"short of time": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 200*time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(o *options) { o.gate = probesNever })
			b.runs(t, business("before"), writes("before"), ledger.Executed)
			b.quiet(t)
			held := b.resp.Arm(wire.Rule{Match: wire.Command("SET", ""), Action: wire.HoldClient})
			ctx, cancel := hurry(t.Context())
			done := b.beside(ctx, business("a"), never(t))
			<-held.Fired()
			if name == "canceled" {
				cancel()
			}
			err := (<-done).err
			cancel()
			require.ErrorIs(t, err, ctx.Err())
			require.Empty(t, b.attribute(t, gate.AttrDegraded).AsString())
			held.Release()
			b.runs(t, patient(business("b")), writes("b"), ledger.Executed)
			require.Empty(t, b.attribute(t, gate.AttrDegraded).AsString(), "the gate has answered")
			b.settle(t)
			token, _, _ := b.stands(t, business("a"))
			require.Nil(t, token, "what the caller left behind is taken away")
			require.Zero(t, b.resp.Stats().Connections, "it is the same connection")
		})
	}
}

// TestASlowHandshakeIsFinished: it takes longer than any caller waits, and the
// gate is back all the same.
func TestASlowHandshakeIsFinished(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *options) {
		o.gate = func(c *gate.Config) {
			probesAtOnce(c)
			c.Timeout = 200 * time.Millisecond
		}
	})
	b.resp.Arm(wire.Rule{Match: wire.Command("HELLO", ""), Action: wire.Delay, Delay: 400 * time.Millisecond, Times: -1})
	b.resp.Cut()
	for asked := false; !asked; {
		_, err := b.gate.Enter(t.Context(), "a", gate.NewToken(false, 1), time.Minute)
		asked = err == nil
	}
}

// TestPostgreSQLIsAway: what the gate has is replayed without it; anything else
// says that it is away.
func TestPostgreSQLIsAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.runs(t, business("a"), writes("a"), ledger.Executed)
	b.settle(t)
	b.pg.Down()
	b.pg.Cut()
	b.runs(t, business("a"), never(t), ledger.GateReplay)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := b.runner.Execute(ctx, business("b"), never(t))
	require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err))
	b.settle(t)
	require.NoError(t, b.pg.Heal())
	b.runs(t, business("b"), writes("b"), ledger.Executed)
	require.Equal(t, 1, b.effects(t, "b"))
}

// TestPostgreSQLWasNeverThere: without the ledger's identity nothing can be
// asked of the gate.
func TestPostgreSQLWasNeverThere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.pg.Refuse()
	b.quiet(t)
	_, err := b.runner.Execute(t.Context(), business("a"), never(t))
	require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err))
	require.Equal(t, "no_identity", b.attribute(t, gate.AttrDegraded).AsString())
	require.Zero(t, b.resp.Stats().RoundTrips)
	require.NoError(t, b.pg.Heal())
	b.runs(t, business("a"), writes("a"), ledger.Executed)
}

// TestWithoutAGate the ledger alone decides.
func TestWithoutAGate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.runner = b.newRunner(t, nil)
	b.quiet(t)
	b.runs(t, business("a"), writes("a"), ledger.Executed)
	b.runs(t, business("a"), never(t), ledger.LedgerReplay)
	_, err := b.runner.Execute(t.Context(), business("b"), fails(errBody))
	require.ErrorIs(t, err, errBody)
	require.Zero(t, b.resp.Stats().RoundTrips)
}
