package gate_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/ledger"
)

// crashEnv tells the test's own program to be a worker that will be killed.
const crashEnv = "EFFECTONCE_TEST_CRASH"

// crash is what the worker is told.
type crash struct {
	DSN, Valkey, Prefix, Name string
	Derived                   bool
	Delivery                  int32
	Lease                     time.Duration
}

func (c crash) request() gate.Request {
	req := business(c.Name)
	if c.Derived {
		req = derived(c.Name, c.Delivery)
	}
	req.Lease = c.Lease
	return req
}

// crasher is the worker's main: one delivery, and what is queued behind it.
func crasher() int {
	if err := deliver(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func deliver(ctx context.Context) error {
	var c crash
	if err := json.Unmarshal([]byte(os.Getenv(crashEnv)), &c); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, c.DSN)
	if err != nil {
		return err
	}
	store, err := ledger.NewStore(ledger.Config{Pool: pool, Tenants: true})
	if err != nil {
		return err
	}
	g, err := gate.New(gate.Config{
		Valkey: valkey.ClientOption{InitAddress: []string{c.Valkey}}, Prefix: c.Prefix, Timeout: 20 * time.Second,
	})
	if err != nil {
		return err
	}
	if err := g.Start(ctx); err != nil {
		return err
	}
	runner, err := gate.NewRunner(gate.RunnerConfig{Ledger: store, Gate: g})
	if err != nil {
		return err
	}
	if _, err := runner.Execute(ctx, c.request(), writes(c.Name)); err != nil {
		return err
	}
	return g.Close(ctx)
}

// crashes runs a worker of its own process, which the rule kills.
func (b *bundle) crashes(t *testing.T, proxy *wire.Proxy, at wire.Match, c crash) {
	t.Helper()
	c.DSN, c.Valkey, c.Prefix = b.link, b.resp.Addr(), b.prefix
	told, err := json.Marshal(c)
	require.NoError(t, err)
	worker := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // the test binary itself
	worker.Env = append(os.Environ(), crashEnv+"="+string(told))
	worker.Stderr = os.Stderr
	started := make(chan struct{})
	rule := proxy.Arm(wire.Rule{Match: at, Action: wire.CutBefore, Do: func(*wire.Event) {
		<-started
		assert.NoError(t, worker.Process.Kill())
	}})
	require.NoError(t, worker.Start())
	close(started)
	require.Error(t, worker.Wait())
	select {
	case <-rule.Fired():
	case <-t.Context().Done():
		t.Fatal("the worker never came to the crash point")
	}
}

// TestCrashes kills a worker's process at each step, and requires what the next
// delivery finds.
func TestCrashes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		proxy func(*bundle) *wire.Proxy
		at    func(key string) wire.Match
		token bool          // a dead worker's token stands
		from  ledger.Source // where the next delivery's result is from
	}{
		"before the gate": {
			onValkey,
			func(key string) wire.Match { return wire.Command("SET", key) }, false, ledger.Executed,
		},
		"after the gate, before the claim": {
			onValkey,
			func(key string) wire.Match { return wire.AnswerTo(wire.Command("SET", key)) }, true, ledger.Executed,
		},
		"after the claim, in the body": {
			onPostgres,
			func(string) wire.Match { return wire.AnswerTo(wire.HasPrefix("insert into effects")) }, true, ledger.Executed,
		},
		"before COMMIT": {
			onPostgres,
			func(string) wire.Match { return wire.Commit() }, true, ledger.Executed,
		},
		"after COMMIT, before the copy": {
			onPostgres,
			func(string) wire.Match { return wire.AnswerTo(wire.Commit()) }, true, ledger.LedgerReplay,
		},
		"after the copy, before it is heard of": {
			onValkey,
			func(key string) wire.Match { return wire.AnswerTo(wire.Command("EVAL", key)) }, false, ledger.GateReplay,
		},
	} {
		for kind, isDerived := range map[string]bool{"derived": true, "named": false} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.runs(t, business("warm"), writes("warm"), ledger.Executed)
				finished := c.from != ledger.Executed
				dead := crash{Name: "a", Derived: isDerived, Delivery: 2, Lease: time.Minute}
				if !isDerived && !finished {
					dead.Lease = 700 * time.Millisecond // is waited for
				}
				next := business("a")
				if isDerived {
					next = derived("a", 3)
				}
				b.crashes(t, c.proxy(b), c.at(b.prefix+b.name(t, next)), dead)

				token, entry, _ := b.stands(t, next)
				if dead.Lease == time.Minute { // else it may be over
					require.Equal(t, c.token, token != nil)
				}
				require.Equal(t, c.from == ledger.GateReplay, entry != nil)
				body := never(t)
				if !finished {
					next, body = patient(next), writes("a")
				}
				b.quiet(t)
				r := b.runs(t, next, body, c.from)
				require.Equal(t, outcome("did a"), r.Outcome)
				require.Equal(t, 1, b.effects(t, "a"))
				questions, postgres := b.costs()
				if isDerived || finished {
					require.Equal(t, 1, questions, "it isn't barred by the dead one's token")
				}
				switch c.from {
				case ledger.GateReplay:
					require.Zero(t, postgres)
					require.Equal(t, 1, b.resp.Stats().RoundTrips)
				case ledger.LedgerReplay:
					require.Equal(t, 1, postgres)
				}
				b.settle(t)
				_, entry, _ = b.stands(t, next)
				require.NotNil(t, entry, "the gate is filled")
				require.Equal(t, r.RowID, entry.RowID)
				require.Equal(t, r.Attempt, entry.Attempt)
				b.runs(t, next, never(t), ledger.GateReplay)
			})
		}
	}
}

func onValkey(b *bundle) *wire.Proxy   { return b.resp }
func onPostgres(b *bundle) *wire.Proxy { return b.pg }
