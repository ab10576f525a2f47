package gate_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/ledger"
)

// TestCosts counts round trips on both wires. The copies go to Valkey beside:
// what is held back there is what no caller may wait for.
func TestCosts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	silent := func(string) ledger.Body {
		return func(context.Context) (ledger.Outcome, error) { return outcome("done"), nil }
	}
	finished := func(t *testing.T, req gate.Request) {
		b.runs(t, req, writes("before"), ledger.Executed)
		b.settle(t)
	}
	atOnce := func(req gate.Request) gate.Request {
		req.Begin = ledger.BeginAtOnce
		return req
	}
	for _, c := range []struct {
		name                string
		request             func(name string) gate.Request
		before              func(*testing.T, gate.Request)
		body                func(string) ledger.Body
		from                ledger.Source // "": in flight
		questions, postgres int
	}{
		{
			"first execution, derived, attempt 1",
			func(n string) gate.Request { return derived(n, 1) }, nil, writes, ledger.Executed, 0, 3,
		},
		{
			"first execution, derived, attempt 1, at once",
			func(n string) gate.Request { return atOnce(derived(n, 1)) }, nil, writes, ledger.Executed, 0, 3,
		},
		{
			"first execution, at once",
			func(n string) gate.Request { return atOnce(business(n)) }, nil, writes, ledger.Executed, 1, 3,
		},
		{
			"first execution, derived, attempt 2, at once",
			func(n string) gate.Request { return atOnce(derived(n, 2)) }, nil, writes, ledger.Executed, 1, 3,
		},
		{"first execution, late", business, nil, writes, ledger.Executed, 1, 4},
		{
			"a body that never asks, derived, attempt 1",
			func(n string) gate.Request { return derived(n, 1) }, nil, silent, ledger.Executed, 0, 1,
		},
		{"gate hit", business, finished, writes, ledger.GateReplay, 1, 0},
		{
			"gate hit, at once",
			func(n string) gate.Request { return atOnce(business(n)) }, finished, writes, ledger.GateReplay, 1, 0,
		},
		{"in flight at the gate", business, func(t *testing.T, req gate.Request) {
			b.put(t, req, gate.NewToken(false, 1).Encode(), time.Minute)
		}, writes, "", 1, 1},
		{"ledger replay", business, func(t *testing.T, req gate.Request) {
			finished(t, req)
			b.remove(t, req)
		}, writes, ledger.LedgerReplay, 1, 1},
	} {
		for _, round := range []string{"cold", "warm"} {
			req := c.request(c.name + round)
			if c.before != nil {
				c.before(t, req)
			}
			b.quiet(t)
			copies := []*wire.Armed{
				b.resp.Arm(wire.Rule{Match: wire.Command("EVAL", ""), Action: wire.HoldClient}),
			}
			if c.questions == 0 {
				copies = append(copies, b.resp.Arm(wire.Rule{Match: wire.Command("SET", ""), Action: wire.HoldClient}))
			}
			r, err := b.runner.Execute(t.Context(), req, c.body(c.name))
			questions, postgres := b.costs()
			for _, held := range copies {
				held.Disarm()
				held.Release()
			}
			if c.from == "" {
				require.Equal(t, ledger.CodeInFlight, ledger.CodeOf(err), c.name)
			} else {
				require.NoError(t, err)
				require.Equal(t, c.from, r.Source, c.name)
			}
			if round == "warm" {
				require.Equal(t, c.questions, questions, "Valkey: %s", c.name)
				require.Equal(t, c.postgres, postgres, "PostgreSQL: %s", c.name)
			}
		}
	}

	t.Log("with the breaker open")
	closed := b.newRunner(t, closedGate(t, b))
	for name, c := range map[string]struct {
		before func(*testing.T, gate.Request)
		body   func(string) ledger.Body
		pg     int
	}{"first execution": {func(*testing.T, gate.Request) {}, writes, 4}, "replay": {finished, writes, 1}} {
		req := business("open, " + name)
		c.before(t, req)
		b.quiet(t)
		_, err := closed.Execute(t.Context(), req, c.body(name))
		require.NoError(t, err)
		_, postgres := b.costs()
		require.Zero(t, b.resp.Stats().RoundTrips)
		require.Equal(t, c.pg, postgres)
	}
}
