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

// delivered is what an execution beside the test answered.
type delivered struct {
	ledger.Result
	err error
}

func (b *bundle) beside(ctx context.Context, req gate.Request, body ledger.Body) <-chan delivered {
	done := make(chan delivered, 1)
	go func() {
		r, err := b.runner.Execute(ctx, req, body)
		done <- delivered{r, err}
	}()
	return done
}

// holding is a body that tells when it runs, and goes on when it may.
func holding(body ledger.Body) (running, goOn chan struct{}, held ledger.Body) {
	running, goOn = make(chan struct{}), make(chan struct{})
	return running, goOn, func(ctx context.Context) (ledger.Outcome, error) {
		close(running)
		<-goOn
		return body(ctx)
	}
}

// asks returns when the key has been asked for n times more.
func (b *bundle) asks(t *testing.T, req gate.Request, n int) {
	t.Helper()
	rule := b.resp.Arm(wire.Rule{Match: wire.Command("SET", b.prefix+b.name(t, req)), Times: -1})
	defer rule.Disarm()
	for range n {
		<-rule.Fired()
	}
}

// TestADuplicateWaitsWithoutAConnection: and ends as soon as the first one does.
func TestADuplicateWaitsWithoutAConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	running, goOn, body := holding(writes("a"))
	first := b.beside(t.Context(), business("a"), body)
	<-running
	b.quiet(t)
	second := b.beside(t.Context(), patient(business("a")), never(t))
	b.asks(t, business("a"), 3)
	require.Zero(t, b.pg.Stats().RoundTrips)
	close(goOn)
	r := <-first
	require.NoError(t, r.err)
	require.Equal(t, ledger.Executed, r.Source)
	r = <-second
	require.NoError(t, r.err)
	require.Equal(t, ledger.GateReplay, r.Source, "the second one never went to PostgreSQL")
	require.Equal(t, 1, b.effects(t, "a"))
}

// TestADuplicateTakesOverFromAFailure: the first one fails and is released.
func TestADuplicateTakesOverFromAFailure(t *testing.T) {
	t.Parallel()
	b := setup(t)
	running, goOn, body := holding(fails(errBody))
	first := b.beside(t.Context(), business("a"), body)
	<-running
	second := b.beside(t.Context(), patient(business("a")), writes("a"))
	b.asks(t, business("a"), 2)
	close(goOn)
	require.ErrorIs(t, (<-first).err, errBody)
	r := <-second
	require.NoError(t, r.err)
	require.Equal(t, ledger.Executed, r.Source)
	require.EqualValues(t, 2, r.Attempt)
}

// TestInFlight: a duplicate's patience is bounded; before the answer the ledger
// is asked once.
func TestInFlight(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"at once": -1, "later": 50 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			req := business("a")
			req.Wait = wait
			b.put(t, req, gate.NewToken(false, 1).Encode(), time.Minute)
			b.runs(t, business("warm"), writes("warm"), ledger.Executed)
			b.quiet(t)
			_, err := b.runner.Execute(t.Context(), req, never(t))
			questions, postgres := b.costs()
			require.Equal(t, 1, postgres)
			require.Equal(t, b.resp.Stats().RoundTrips, questions)
			if wait < 0 {
				require.Equal(t, 1, questions)
			} else {
				require.Greater(t, questions, 1)
			}
			require.Equal(t, ledger.CodeInFlight, ledger.CodeOf(err))
			var e *ledger.Error
			require.ErrorAs(t, err, &e)
			require.Positive(t, e.RetryAfter)
			require.LessOrEqual(t, e.RetryAfter, time.Minute)
			require.Greater(t, e.RetryAfter, 30*time.Second, "the lease that is left")
			require.Equal(t, "in_flight", b.attribute(t, gate.AttrOutcome).AsString())
			b.settle(t)
			token, _, _ := b.stands(t, req)
			require.NotNil(t, token, "another's token is left alone")
		})
	}
}

// TestTheLeaseEnds: a token whose owner is gone bars as long as its lease.
func TestTheLeaseEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := patient(business("a"))
	b.put(t, req, gate.NewToken(false, 1).Encode(), 300*time.Millisecond)
	b.quiet(t)
	b.runs(t, req, writes("a"), ledger.Executed)
	questions, _ := b.costs()
	require.Greater(t, questions, 1)
}

// TestACallerStopsWaiting: its context ends, and nothing is left of it.
func TestACallerStopsWaiting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held := gate.NewToken(false, 1)
	b.put(t, business("a"), held.Encode(), time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	done := b.beside(ctx, patient(business("a")), never(t))
	b.asks(t, business("a"), 1)
	cancel()
	require.ErrorIs(t, (<-done).err, context.Canceled)
	b.settle(t)
	token, _, _ := b.stands(t, business("a"))
	require.Equal(t, &held, token)
}

// TestADeadlineThatHasPassed is refused before the body, and before the gate.
func TestADeadlineThatHasPassed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.quiet(t)
	ctx, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	_, err := b.runner.Execute(ctx, business("a"), never(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, b.resp.Stats().RoundTrips)
}

// TestLeasesAreFinite: every token ends, with the caller's deadline or without.
func TestLeasesAreFinite(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range map[string]struct {
		lease, deadline, most time.Duration
	}{
		"asked for":           {time.Hour, 0, time.Hour},
		"of the deadline":     {0, 30 * time.Second, 30 * time.Second},
		"without any":         {0, 0, time.Minute},
		"under a millisecond": {time.Nanosecond, 0, time.Millisecond},
	} {
		req := business(name)
		req.Lease = c.lease
		ctx := t.Context()
		if c.deadline > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, c.deadline)
			defer cancel()
		}
		_, err := b.runner.Execute(ctx, req, func(context.Context) (ledger.Outcome, error) {
			token, _, left := b.stands(t, req)
			require.LessOrEqual(t, left, c.most)
			if c.most > time.Second {
				require.NotNil(t, token)
				require.Greater(t, left, c.most/2)
			}
			return outcome(name), nil
		})
		require.NoError(t, err)
	}
}

func TestWhomATokenBars(t *testing.T) {
	t.Parallel()
	token := gate.NewToken
	require.False(t, token(true, 1).Bars(token(true, 2)), "Temporal has given it up")
	require.True(t, token(true, 2).Bars(token(true, 2)))
	require.True(t, token(true, 3).Bars(token(true, 2)), "an attempt that is given up itself")
	require.True(t, token(false, 1).Bars(token(false, 2)), "named keys' deliveries aren't each other's retries")
	require.True(t, token(false, 1).Bars(token(true, 2)))
	require.True(t, token(true, 1).Bars(token(false, 2)))
}

// TestALowerAttemptsTokenDoesNotBar: nor is it taken for ours.
func TestALowerAttemptsTokenDoesNotBar(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := derived("a", 2)
	lower := gate.NewToken(true, 1)
	b.put(t, req, lower.Encode(), time.Minute)
	b.quiet(t)
	_, err := b.runner.Execute(t.Context(), req, fails(errBody))
	require.ErrorIs(t, err, errBody)
	questions, _ := b.costs()
	require.Equal(t, 1, questions)
	b.settle(t)
	token, _, _ := b.stands(t, req)
	require.Equal(t, &lower, token)
	b.runs(t, derived("a", 3), writes("a"), ledger.Executed)
}
