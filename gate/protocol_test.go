package gate_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/ledger"
)

// remove takes away what stands at the gate, as an eviction would.
func (b *bundle) remove(t *testing.T, req gate.Request) {
	t.Helper()
	require.NoError(t, b.direct.Do(t.Context(), b.direct.B().Del().Key(b.prefix+b.name(t, req)).Build()).Error())
}

// TestMismatchTouchesNeitherStore: another request under the same key is found
// on a gate hit, on a ledger replay, in flight and with the gate away.
func TestMismatchTouchesNeitherStore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := business("a")
	b.runs(t, req, writes("a"), ledger.Executed)
	b.settle(t)
	_, entry, _ := b.stands(t, req)
	require.NotNil(t, entry)
	row := func() ledger.Row {
		row, ok, err := b.store.Look(t.Context(), ledger.Ref{Owner: req.Owner, Key: req.Key})
		require.NoError(t, err)
		require.True(t, ok)
		row.Left = 0
		return row
	}
	before := row()
	other := req
	other.Fingerprint[0]++
	mismatches := func(runner *gate.Runner) {
		t.Helper()
		_, err := runner.Execute(t.Context(), other, never(t))
		require.Equal(t, ledger.CodeMismatch, ledger.CodeOf(err))
		b.settle(t)
		require.Equal(t, before, row())
	}

	b.quiet(t)
	mismatches(b.runner)
	questions, _ := b.costs()
	require.Equal(t, 1, questions)
	_, after, _ := b.stands(t, req)
	require.Equal(t, entry, after, "on a gate hit")

	b.remove(t, req)
	mismatches(b.runner)
	token, after, _ := b.stands(t, req)
	require.Nil(t, token, "on a ledger replay")
	require.Nil(t, after, "on a ledger replay")

	held := gate.NewToken(false, 1)
	b.put(t, req, held.Encode(), time.Minute)
	mismatches(b.runner)
	token, _, _ = b.stands(t, req)
	require.Equal(t, &held, token, "in flight at the gate")

	mismatches(b.newRunner(t, closedGate(t, b)))
}

// closedGate is one that never answers.
func closedGate(t *testing.T, b *bundle) *gate.Gate {
	t.Helper()
	g := newGate(t, b.resp.Addr(), b.prefix, func(*gate.Config) {})
	require.NoError(t, g.Close(t.Context()))
	return g
}

func TestPermanentFailureIsReplayedOrRunAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := business("a")
	_, err := b.runner.Execute(t.Context(), req, fails(errPermanent))
	require.ErrorIs(t, err, errPermanent)
	b.settle(t)
	token, entry, _ := b.stands(t, req)
	require.Nil(t, token, "released")
	require.Nil(t, entry)

	r := b.runs(t, req, never(t), ledger.LedgerReplay)
	require.Equal(t, ledger.FailedPermanent, r.Status)
	b.settle(t)
	r = b.runs(t, req, never(t), ledger.GateReplay)
	require.Equal(t, ledger.FailedPermanent, r.Status)
	require.Equal(t, outcome(errPermanent.Error()), r.Outcome)
	require.EqualValues(t, 1, r.Attempt)

	again := req
	again.RerunPermanent = true
	r = b.runs(t, again, writes("a"), ledger.Executed)
	require.EqualValues(t, 2, r.Attempt)
	b.settle(t)
	for _, req := range []gate.Request{req, again} {
		r = b.runs(t, req, never(t), ledger.GateReplay)
		require.Equal(t, ledger.Completed, r.Status)
		require.EqualValues(t, 2, r.Attempt)
	}
	require.Equal(t, 1, b.effects(t, "a"))
	require.Zero(t, b.effects(t, "failed"))
}

func TestRetryableFailureIsReleasedAndRunAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for attempt := range 3 {
		_, err := b.runner.Execute(t.Context(), business("a"), fails(errBody))
		require.ErrorIs(t, err, errBody, attempt)
		b.settle(t)
		token, _, _ := b.stands(t, business("a"))
		require.Nil(t, token)
	}
	r := b.runs(t, business("a"), writes("a"), ledger.Executed)
	require.EqualValues(t, 4, r.Attempt)
	require.Equal(t, 1, b.effects(t, "a"))
}

// TestPanicIsReleased: the panic goes on, and neither store keeps anything.
func TestPanicIsReleased(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := business("a")
	require.PanicsWithValue(t, "the body's", func() {
		_, _ = b.runner.Execute(t.Context(), req, func(ctx context.Context) (ledger.Outcome, error) {
			assert.NoError(t, ledgertest.Effect(ctx, "a"))
			token, _, _ := b.stands(t, req)
			assert.NotNil(t, token)
			panic("the body's")
		})
	})
	b.settle(t)
	token, _, _ := b.stands(t, req)
	require.Nil(t, token)
	b.runs(t, req, writes("a"), ledger.Executed)
	require.Equal(t, 1, b.effects(t, "a"))
}

// TestLateReleaseLeavesAnothersToken: the lease ran out while the body worked,
// and another has the gate when it fails.
func TestLateReleaseLeavesAnothersToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := business("a")
	other := gate.NewToken(false, 1)
	_, err := b.runner.Execute(t.Context(), req, func(context.Context) (ledger.Outcome, error) {
		token, _, _ := b.stands(t, req)
		assert.NotNil(t, token)
		b.put(t, req, other.Encode(), time.Minute)
		return ledger.Outcome{}, errBody
	})
	require.ErrorIs(t, err, errBody)
	b.settle(t)
	token, _, _ := b.stands(t, req)
	require.Equal(t, &other, token)
}

// TestCommitInDoubtIsNotReleased: the COMMIT's answer is lost, and whether it
// was executed stays unknown until the caller gives up.
func TestCommitInDoubtIsNotReleased(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hasty := ledgertest.Store(t, itest.Pool(t, b.link), func(c *ledger.Config) {
		c.FinishTimeout, c.Limits.Timeout = 100*time.Millisecond, -1
	})
	runner, err := gate.NewRunner(gate.RunnerConfig{Ledger: hasty, Gate: b.gate})
	require.NoError(t, err)

	req := derived("a", 2)
	held := b.pg.Arm(wire.Rule{Match: wire.Commit(), Action: wire.CutClientHoldServer})
	_, err = runner.Execute(t.Context(), req, writes("a"))
	require.True(t, ledger.InDoubt(err), "%v", err)
	b.settle(t)
	token, entry, _ := b.stands(t, req)
	require.Nil(t, entry)
	require.NotNil(t, token, "kept while in doubt")
	require.EqualValues(t, 2, token.Delivery)
	held.Release()
	<-held.Settled()
	b.runs(t, derived("a", 3), never(t), ledger.LedgerReplay)
	require.Equal(t, 1, b.effects(t, "a"))

	req = derived("b", 2)
	b.pg.Arm(wire.Rule{Match: wire.Commit(), Action: wire.CutBefore})
	_, err = b.runner.Execute(t.Context(), req, writes("b"))
	require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err))
	require.False(t, ledger.InDoubt(err))
	b.settle(t)
	token, _, _ = b.stands(t, req)
	require.Nil(t, token, "released once it is sure that nothing was committed")

	req = derived("c", 2)
	b.pg.Arm(wire.Rule{Match: wire.Commit(), Action: wire.CutAfter})
	b.runs(t, req, writes("c"), ledger.Executed)
	b.settle(t)
	_, entry, _ = b.stands(t, req)
	require.NotNil(t, entry, "copied once it is sure that it was")
}

// TestTheReplyOfSETIsLost: the token stands or doesn't, the outcome is the same.
func TestTheReplyOfSETIsLost(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]wire.Action{"before": wire.CutBefore, "after": wire.CutAfter, "reset": wire.Reset} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(o *options) { o.gate = func(c *gate.Config) { c.Probe = time.Millisecond } })
			b.resp.Arm(wire.Rule{Match: wire.Command("SET", b.prefix+b.name(t, business("a"))), Action: action})
			b.runs(t, business("a"), writes("a"), ledger.Executed)
			b.replayed(t, business("a"))
			require.Equal(t, 1, b.effects(t, "a"))
		})
	}
	t.Run("own token", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		token, other := gate.NewToken(false, 1), gate.NewToken(false, 1)
		for range 2 {
			answer, err := b.gate.Enter(t.Context(), "a", token, time.Minute)
			require.NoError(t, err)
			require.Zero(t, answer, "ours to go on with")
		}
		answer, err := b.gate.Enter(t.Context(), "a", other, time.Minute)
		require.NoError(t, err)
		require.Equal(t, &token, answer.Token)
		require.Positive(t, answer.Left)
		require.LessOrEqual(t, answer.Left, time.Minute)
	})
}

// replayed delivers until the gate answers: it is back after its probe, and the
// first replays fill it again. None of them waits for a token that stands.
func (b *bundle) replayed(t *testing.T, req gate.Request) {
	t.Helper()
	for {
		r, err := b.runner.Execute(t.Context(), req, never(t))
		require.NoError(t, err)
		if r.Source == ledger.GateReplay {
			return
		}
	}
}

// TestLargeResultsStayInTheLedger: and leave no token that would bar.
func TestLargeResultsStayInTheLedger(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for size, from := range map[int]ledger.Source{64 << 10: ledger.GateReplay, 64<<10 + 1: ledger.LedgerReplay} {
		large := outcome(strings.Repeat("x", size))
		req := business(string(from))
		r, err := b.runner.Execute(t.Context(), req, func(context.Context) (ledger.Outcome, error) { return large, nil })
		require.NoError(t, err)
		require.Equal(t, ledger.Executed, r.Source)
		for range 2 {
			b.quiet(t)
			r := b.runs(t, req, never(t), from)
			require.Equal(t, large.Data, r.Outcome.Data)
			questions, _ := b.costs()
			require.Equal(t, 1, questions, "nothing bars")
		}
		b.settle(t)
		token, _, _ := b.stands(t, req)
		require.Nil(t, token)
	}
}

// TestWhatIsNotOursIsNoHarm: whatever stands at the key, the ledger decides, the
// breaker stays closed, and the outcome takes its place.
func TestWhatIsNotOursIsNoHarm(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entry := gate.Entry{RowID: 1 << 40, Attempt: 9, Status: ledger.Completed, Fingerprint: business("a").Fingerprint, Outcome: outcome("a lie")}
	for name, command := range map[string][]string{
		"text":               {"SET", "hello"},
		"empty":              {"SET", ""},
		"half an entry":      {"SET", entry.Encode()[:40], "PX", "60000"},
		"like an entry":      {"SET", "e1" + strings.Repeat("z", 200), "PX", "60000"},
		"list":               {"LPUSH", "x"},
		"hash":               {"HSET", "f", "v"},
		"endless entry":      {"SET", entry.Encode()},
		"endless token":      {"SET", gate.NewToken(false, 1).Encode()},
		"of another version": {"SET", "t2" + gate.NewToken(false, 1).Encode()[2:], "PX", "60000"},
	} {
		req := business(name)
		key := b.prefix + b.name(t, req)
		require.NoError(t, b.direct.Do(t.Context(), b.direct.B().Arbitrary(command[0]).Keys(key).Args(command[1:]...).Build()).Error())
		b.runs(t, req, writes(name), ledger.Executed)
		b.settle(t) // with the breaker open it would not return
		require.Equal(t, "foreign", b.attribute(t, gate.AttrDegraded).AsString(), name)
		require.Equal(t, 1, b.effects(t, name))
		if name == "half an entry" {
			continue // its order is larger than ours: it goes with its life
		}
		b.runs(t, req, never(t), ledger.GateReplay)
	}
}

// TestConcurrentDeliveries: 64 deliveries of one key through two gates are one
// effect and one result.
func TestConcurrentDeliveries(t *testing.T) {
	t.Parallel()
	b := setup(t)
	runners := []*gate.Runner{b.runner, b.newRunner(t, newGate(t, b.resp.Addr(), b.prefix, func(*gate.Config) {}))}
	for name, request := range map[string]func(i int32) gate.Request{
		"named":   func(int32) gate.Request { return patient(business("named")) },
		"derived": func(i int32) gate.Request { return patient(derived("derived", 1+i%4)) },
	} {
		results := make([]ledger.Result, 64)
		var group sync.WaitGroup
		for i := range results {
			group.Add(1)
			go func() {
				defer group.Done()
				var err error
				results[i], err = runners[i%2].Execute(t.Context(), request(int32(i)), writes(name)) //nolint:gosec // a small number
				assert.NoError(t, err)
			}()
		}
		group.Wait()
		executed := 0
		for _, r := range results {
			if r.Source == ledger.Executed {
				executed++
			}
			assert.Equal(t, results[0].RowID, r.RowID)
			assert.Equal(t, results[0].Attempt, r.Attempt)
			assert.Equal(t, outcome("did "+name), r.Outcome)
		}
		assert.Equal(t, 1, executed)
		assert.Equal(t, 1, b.effects(t, name))
	}
}
