package ledger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/ledger"
)

func leased(req ledger.Request) ledger.Request {
	req.Begin, req.Lease = ledger.BeginLeased, time.Hour
	return req
}

// owners are a platform's and a tenant's leased requests.
func owners(name string) map[string]ledger.Request {
	tenant := leased(request(name))
	tenant.Owner = ledger.Tenant(ledgertest.TenantA)
	return map[string]ledger.Request{"platform": leased(request(name)), "tenant": tenant}
}

func says(text string) ledger.Body {
	return func(context.Context) (ledger.Outcome, error) { return outcome(text), nil }
}

func (b *bundle) expire(t *testing.T) {
	t.Helper()
	b.exec(t, "UPDATE platform_idempotency_keys SET expires_at = clock_timestamp() - interval '1 second'")
	b.exec(t, "UPDATE idempotency_keys SET expires_at = clock_timestamp() - interval '1 second'")
}

func TestLeasedOnceThenReplay(t *testing.T) {
	t.Parallel()
	for name, req := range owners("a") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			r, err := b.execute(t, req, func(ctx context.Context) (ledger.Outcome, error) {
				assert.Zero(t, b.pool.Stat().AcquiredConns(), "no connection is held")
				_, err := ledger.Tx(ctx)
				assert.ErrorIs(t, err, ledger.ErrLeased)
				x, _ := ledger.FromContext(ctx)
				fence, ok := x.Fence()
				assert.True(t, ok)
				assert.Equal(t, int32(1), fence.Attempt)
				row, _ := b.row(t, req)
				assert.Equal(t, ledger.Processing, row.Status)
				assert.Equal(t, row.ID, fence.RowID)
				assert.InDelta(t, time.Hour, row.Left, float64(time.Minute))

				_, err = b.execute(t, req, never(t))
				assert.Equal(t, ledger.CodeInFlight, ledger.CodeOf(err))
				return outcome("sent"), nil
			})
			require.NoError(t, err)
			require.Equal(t, ledger.Executed, r.Source)
			require.Greater(t, r.Left, 24*time.Hour)
			again, err := b.execute(t, req, never(t))
			require.NoError(t, err)
			require.Equal(t, outcome("sent"), again.Outcome)
			require.Equal(t, ledger.LedgerReplay, again.Source)
			row, _ := b.row(t, req)
			require.Greater(t, row.Left, 24*time.Hour, "the retention, not the lease")
		})
	}
}

func TestALateRunnerIsFenced(t *testing.T) {
	t.Parallel()
	for name, req := range owners("a") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			_, err := b.execute(t, req, func(ctx context.Context) (ledger.Outcome, error) {
				x, _ := ledger.FromContext(ctx)
				assert.NoError(t, x.Renew(ctx))
				b.expire(t)
				_, err := b.execute(t, req, func(ctx context.Context) (ledger.Outcome, error) {
					y, _ := ledger.FromContext(ctx)
					mine, _ := x.Fence()
					theirs, _ := y.Fence()
					assert.Greater(t, theirs.Attempt, mine.Attempt)
					return outcome("second"), nil
				})
				assert.NoError(t, err)
				assert.Equal(t, ledger.CodeFenced, ledger.CodeOf(x.Renew(ctx)))
				assert.ErrorIs(t, ctx.Err(), context.Canceled, "the body hears of it")
				return outcome("first"), nil
			})
			require.Equal(t, ledger.CodeFenced, ledger.CodeOf(err))
			row, _ := b.row(t, req)
			require.Equal(t, outcome("second"), row.Outcome)
			require.Equal(t, int32(2), row.Attempt)
		})
	}
}

func TestFencedWithoutARenewal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := leased(records(request("a")))
	for _, late := range []error{nil, errBody, errPermanent} {
		_, err := b.execute(t, req, func(context.Context) (ledger.Outcome, error) {
			b.expire(t)
			_, err := b.execute(t, req, func(context.Context) (ledger.Outcome, error) { return ledger.Outcome{}, errBody })
			assert.Same(t, errBody, err)
			return outcome("late"), late
		})
		require.Error(t, err)
		row, _ := b.row(t, req)
		require.Equal(t, ledger.FailedRetryable, row.Status, "the late one wrote nothing")
		require.Equal(t, outcome(errBody.Error()), row.Outcome)
	}
}

func TestLeasedFailures(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fails := func(err error) ledger.Body {
		return func(context.Context) (ledger.Outcome, error) { return ledger.Outcome{}, err }
	}
	req := leased(records(request("a")))
	_, err := b.execute(t, req, fails(errBody))
	require.Same(t, errBody, err)
	_, err = b.execute(t, req, fails(errPermanent)) // at once: a failure gives the lease up
	require.Same(t, errPermanent, err)
	r, err := b.execute(t, req, never(t))
	require.NoError(t, err)
	require.Equal(t, ledger.FailedPermanent, r.Status)
	require.Equal(t, int32(2), r.Attempt)
}

func TestLeasedUnknownTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := leased(request("a"))
	req.Owner = ledger.Tenant(404)
	_, err := b.execute(t, req, never(t))
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
}

// TestTheRecordsAnswerIsLost: it is sent again, and recorded once.
func TestTheRecordsAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]wire.Action{"after": wire.CutAfter, "before": wire.CutBefore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setupWired(t)
			lost := w.proxy.Arm(wire.Rule{Match: wire.Contains("_record("), Action: action})
			r, err := w.execute(t, leased(request("a")), says("sent"))
			require.NoError(t, err)
			<-lost.Fired()
			require.Equal(t, ledger.Executed, r.Source)
			again, err := w.execute(t, leased(request("a")), never(t))
			require.NoError(t, err)
			require.Equal(t, outcome("sent"), again.Outcome)
		})
	}
}

// TestTheClaimsAnswerIsLost: the lease may stand, so that nobody runs until it is over.
func TestTheLeasedClaimsAnswerIsLost(t *testing.T) {
	t.Parallel()
	w := setupWired(t)
	lost := w.proxy.Arm(wire.Rule{Match: wire.Contains("_claim("), Action: wire.CutAfter})
	req := leased(request("a"))
	_, err := w.execute(t, req, never(t))
	require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err))
	<-lost.Settled()
	_, err = w.execute(t, req, never(t))
	require.Equal(t, ledger.CodeInFlight, ledger.CodeOf(err))
	w.expire(t)
	r, err := w.execute(t, req, says("sent"))
	require.NoError(t, err)
	require.Equal(t, int32(2), r.Attempt)
}

func TestLeasedLargeResult(t *testing.T) {
	t.Parallel()
	b := setup(t)
	large := outcome(string(make([]byte, 100_000)))
	req := leased(request("a"))
	_, err := b.execute(t, req, func(context.Context) (ledger.Outcome, error) { return large, nil })
	require.NoError(t, err)
	r, err := b.execute(t, req, never(t))
	require.NoError(t, err)
	require.Equal(t, large, r.Outcome)
}

func TestALeaseNeverHasNoEnd(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := leased(request("a"))
	req.Lease = 0
	_, err := b.execute(t, req, func(context.Context) (ledger.Outcome, error) {
		row, _ := b.row(t, req)
		assert.InDelta(t, time.Minute, row.Left, float64(5*time.Second))
		return ledger.Outcome{}, errors.New("no deadline: a minute")
	})
	require.Error(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req.Key = request("b").Key
	_, err = b.store.Execute(ctx, req, func(context.Context) (ledger.Outcome, error) {
		row, _ := b.row(t, req)
		assert.InDelta(t, 20*time.Second, row.Left, float64(5*time.Second))
		return outcome("the deadline's"), nil
	})
	require.NoError(t, err)
}
