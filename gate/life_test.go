package gate_test

import (
	"context"
	"crypto/rand"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/internal/clock"
	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/ledger"
)

// margin is how much sooner than its row an entry must end.
const margin = 2 * time.Second

// endsBeforeItsRow requires that the entry at the gate ends before its row.
func (b *bundle) endsBeforeItsRow(t *testing.T, req gate.Request) {
	t.Helper()
	began := clock.Now()
	_, entry, life := b.stands(t, req)
	require.NotNil(t, entry)
	row, ok, err := b.store.Look(t.Context(), ledger.Ref{Owner: req.Owner, Key: req.Key})
	require.NoError(t, err)
	require.True(t, ok)
	require.Positive(t, life)
	require.LessOrEqual(t, life, row.Left+clock.Since(began)-margin)
}

// waitInPostgres lets time pass on the server.
func (b *bundle) waitInPostgres(ctx context.Context, d time.Duration) error {
	_, err := b.pool.Exec(ctx, "SELECT pg_sleep($1)", d.Seconds())
	return err
}

func TestEntriesEndBeforeTheirRows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, retention := range map[string]time.Duration{"minute": time.Minute, "week": 0, "year": 365 * 24 * time.Hour} {
		req := business(name)
		req.Retention = retention
		b.runs(t, req, writes(name), ledger.Executed)
		b.settle(t)
		b.endsBeforeItsRow(t, req)
		b.remove(t, req)
		b.runs(t, req, never(t), ledger.LedgerReplay)
		b.settle(t)
		b.endsBeforeItsRow(t, req)
	}
}

// TestShortRetentionIsNotCopied: shorter than the margin; nothing bars after it.
func TestShortRetentionIsNotCopied(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, retention := range map[string]time.Duration{"second": time.Second, "margin": margin} {
		req := business(name)
		req.Retention = retention
		b.runs(t, req, writes(name), ledger.Executed)
		b.settle(t)
		token, entry, _ := b.stands(t, req)
		require.Nil(t, token)
		require.Nil(t, entry)
	}
}

// TestADawdlingReplayIsNoLongerLife: the claim has found the outcome, and the
// body takes its time to return.
func TestADawdlingReplayIsNoLongerLife(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := derived("a", 1)
	req.Retention = 20 * time.Second
	b.runs(t, req, writes("a"), ledger.Executed)
	b.settle(t)
	b.remove(t, req)
	b.runs(t, req, func(ctx context.Context) (ledger.Outcome, error) {
		_, err := ledger.Tx(ctx)
		require.ErrorIs(t, err, ledger.ErrReplay)
		require.NoError(t, b.waitInPostgres(ctx, margin+500*time.Millisecond))
		return ledger.Outcome{}, err
	}, ledger.LedgerReplay)
	b.settle(t)
	b.endsBeforeItsRow(t, req)
}

// TestALateCopyIsNoLongerLife: the copy was sent in time and is long on its way,
// as it is when Valkey is stopped and goes on.
func TestALateCopyIsNoLongerLife(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := business("a")
	req.Retention = margin + time.Second
	held := b.resp.Arm(wire.Rule{Match: wire.Command("EVAL", b.prefix+b.name(t, req)), Action: wire.HoldClient})
	b.runs(t, req, writes("a"), ledger.Executed)
	<-held.Fired()
	require.NoError(t, b.waitInPostgres(t.Context(), req.Retention))
	held.Release()
	<-held.Settled()
	_, entry, _ := b.stands(t, req)
	require.Nil(t, entry, "its row is over")
}

// TestEntriesAreOrdered: an entry replaces only a smaller one, in whatever order
// the copies arrive.
func TestEntriesAreOrdered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	entries := []gate.Entry{ // from small to large
		{RowID: 9, Attempt: 1, Status: ledger.FailedPermanent},
		{RowID: 9, Attempt: 1, Status: ledger.Completed},
		{RowID: 9, Attempt: 2, Status: ledger.FailedPermanent},
		{RowID: 9, Attempt: 10, Status: ledger.Completed},
		{RowID: 10, Attempt: 1, Status: ledger.FailedPermanent},
		{RowID: 1 << 40, Attempt: 1, Status: ledger.Completed},
	}
	for i := range entries {
		entries[i].Outcome = outcome(rand.Text())
	}
	for i, first := range entries {
		for j, second := range entries {
			req := business(rand.Text())
			name := b.name(t, req)
			b.gate.Mark(name, gate.NewToken(false, 1), time.Minute)
			require.NoError(t, b.gate.Publish(name, first, time.Minute))
			require.NoError(t, b.gate.Publish(name, second, time.Minute))
			b.gate.Mark(name, gate.NewToken(false, 1), time.Minute)
			b.settle(t)
			_, entry, _ := b.stands(t, req)
			require.Equal(t, &entries[max(i, j)], entry)
		}
	}
}

// TestACloneNeverMeetsAnothersEntries: a database made from another one, with an
// identity of its own, shares neither tokens nor entries with it.
func TestACloneNeverMeetsAnothersEntries(t *testing.T) {
	t.Parallel()
	source := ledgertest.Database(t)
	prefix := "test:" + rand.Text() + ":"
	on := func(dsn string) func(*options) {
		return func(o *options) { o.dsn, o.prefix = dsn, prefix }
	}
	t.Run("source", func(t *testing.T) { // its connections end with it
		b := setup(t, on(source))
		b.runs(t, business("a"), writes("a"), ledger.Executed)
		b.settle(t)
		b.runs(t, business("a"), never(t), ledger.GateReplay)
	})

	b := setup(t, on(clone(t, source)))
	b.exec(t, "UPDATE effectonce_ledger SET ledger_id = gen_random_uuid()")
	b.exec(t, "DELETE FROM platform_idempotency_keys")
	r := b.runs(t, business("a"), writes("a"), ledger.Executed)
	require.Equal(t, 2, b.effects(t, "a"))
	b.settle(t)
	require.Equal(t, r.RowID, b.runs(t, business("a"), never(t), ledger.GateReplay).RowID)

	again := setup(t, on(source))
	require.NotEqual(t, r.RowID, again.runs(t, business("a"), never(t), ledger.GateReplay).RowID)
}

func (b *bundle) exec(t *testing.T, sql string) {
	t.Helper()
	_, err := b.pool.Exec(t.Context(), sql)
	require.NoError(t, err)
}

// clone copies a database that nobody is connected to, and returns its DSN.
func clone(t *testing.T, dsn string) string {
	t.Helper()
	address, err := url.Parse(dsn)
	require.NoError(t, err)
	of := strings.TrimPrefix(address.Path, "/")
	name := "test_" + strings.ToLower(rand.Text())
	admin := itest.Pool(t, itest.Database(t))
	_, err = admin.Exec(t.Context(), "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" TEMPLATE "+pgx.Identifier{of}.Sanitize())
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.WithoutCancel(t.Context()), "DROP DATABASE "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
		require.NoError(t, err)
	})
	address.Path = "/" + name
	return address.String()
}

// TestOwnersAreApart: the same key of two tenants and of the platform.
func TestOwnersAreApart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, owner := range []ledger.Owner{ledger.Platform(), ledger.Tenant(ledgertest.TenantA), ledger.Tenant(ledgertest.TenantB)} {
		req := business("a")
		req.Owner = owner
		b.runs(t, req, writes(owner.String()), ledger.Executed)
		b.settle(t)
		r := b.runs(t, req, never(t), ledger.GateReplay)
		require.Equal(t, outcome("did "+owner.String()), r.Outcome)
	}
}
