package ledger_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/clock"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/ledger"
)

// fill puts n finished rows there that expired so long ago, a microsecond
// between two of them, or will expire where ago is negative.
func (b *bundle) fill(t *testing.T, n int, ago time.Duration, status ledger.Status, tenants bool) {
	t.Helper()
	table, column, tenant := "platform_idempotency_keys", "", ""
	if tenants {
		table, column, tenant = "idempotency_keys", "tenant_id, ", fmt.Sprintf("%d, ", ledgertest.TenantA)
	}
	outcome := `{"e": "test/1", "v": 1}`
	if status == ledger.Processing {
		outcome = "{}"
	}
	b.exec(t, `INSERT INTO `+table+` (`+column+`idempotency_key, request_fingerprint, status, outcome, expires_at)
SELECT `+tenant+`sha256(convert_to(gen_random_uuid()::text, 'UTF8')), sha256('x'), $1, $2::text::jsonb, clock_timestamp() - $3::interval + i * interval '1 microsecond'
  FROM generate_series(1, $4) AS i`, string(status), outcome, ago, n)
}

func (b *bundle) count(t *testing.T, table string) (n int) {
	t.Helper()
	require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
	return n
}

func (b *bundle) prune(t *testing.T, limit int) int {
	t.Helper()
	n, err := b.store.Prune(t.Context(), limit)
	require.NoError(t, err)
	return n
}

func TestPruneDeletesWhatHasExpiredAndNothingElse(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ledger.Config) { c.PruneBatch = 7 })
	for _, tenants := range []bool{false, true} {
		b.fill(t, 20, time.Hour, ledger.Completed, tenants)
		b.fill(t, 5, time.Minute, ledger.FailedPermanent, tenants)
		b.fill(t, 5, time.Minute, ledger.FailedRetryable, tenants)
		b.fill(t, 3, 8*24*time.Hour, ledger.Processing, tenants) // abandoned for longer than any retention
		// Kept:
		b.fill(t, 4, time.Hour, ledger.Processing, tenants) // a lease that is over may still be taken over
		b.fill(t, 4, -time.Hour, ledger.Processing, tenants)
		b.fill(t, 4, -time.Hour, ledger.Completed, tenants)
		b.fill(t, 4, ledger.PruneMargin-time.Hour, ledger.FailedRetryable, tenants)
	}
	require.Equal(t, 10, b.prune(t, 10))
	require.Equal(t, 56, b.prune(t, 1000))
	require.Zero(t, b.prune(t, 1000))
	for _, table := range []string{"platform_idempotency_keys", "idempotency_keys"} {
		require.Equal(t, 16, b.count(t, table))
		require.Equal(t, 4, b.count(t, table+" WHERE status = 'processing' AND expires_at < clock_timestamp()"))
	}
}

func TestPruneTakesTheOldestFirst(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(t, 5, time.Hour, ledger.Completed, false)
	b.fill(t, 5, 3*time.Hour, ledger.Completed, false)
	b.fill(t, 5, 2*time.Hour, ledger.Completed, false)
	require.Equal(t, 8, b.prune(t, 8))
	require.Equal(t, 5, b.count(t, "platform_idempotency_keys WHERE expires_at > clock_timestamp() - interval '90 minutes'"))
	require.Equal(t, 2, b.count(t, "platform_idempotency_keys WHERE expires_at < clock_timestamp() - interval '90 minutes'"))
}

// TestPruneWaitsForTheMargin: the gate has nothing of a row by then.
func TestPruneWaitsForTheMargin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(t, 10, time.Hour, ledger.Completed, false)
	p, err := b.store.PruneBatch(t.Context(), ledger.PruneRange{Until: clock.Now().Add(time.Hour)}, 100, time.Second)
	require.NoError(t, err)
	require.True(t, p.Done)
	require.Equal(t, ledger.PruneMargin, p.Now.Sub(p.Rest.Until))
	require.Equal(t, p.Rest.Until, p.Rest.From)
}

func TestPruneTakesThePayloadsAlong(t *testing.T) {
	t.Parallel()
	for name, owner := range map[string]ledger.Owner{"platform": ledger.Platform(), "tenant": ledger.Tenant(ledgertest.TenantA)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			for _, key := range []string{"old", "kept"} {
				req := request(key)
				req.Owner = owner
				_, err := b.execute(t, req, func(context.Context) (ledger.Outcome, error) {
					return outcome(string(make([]byte, 100_000))), nil
				})
				require.NoError(t, err)
				if key == "old" {
					b.expire(t)
					b.exec(t, "UPDATE platform_idempotency_keys SET expires_at = expires_at - interval '1 minute'")
					b.exec(t, "UPDATE idempotency_keys SET expires_at = expires_at - interval '1 minute'")
				}
			}
			require.Equal(t, 1, b.prune(t, 10))
			require.Equal(t, 1, b.count(t, "platform_idempotency_payloads")+b.count(t, "idempotency_payloads"))
			req := request("kept")
			req.Owner = owner
			_, err := b.execute(t, req, never(t))
			require.NoError(t, err)
		})
	}
}

// TestPruneFindsWhatWasLeftBehind: what expired before a call's place is found by the next one.
func TestPruneFindsWhatWasLeftBehind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fill(t, 10, time.Hour, ledger.Completed, false)
	require.Equal(t, 10, b.prune(t, 10)) // up to its limit
	b.fill(t, 3, 2*time.Hour, ledger.Completed, false)
	require.Equal(t, 3, b.prune(t, 10))
	b.fill(t, 4, 3*time.Hour, ledger.Completed, false)
	require.Equal(t, 4, b.prune(t, 10))

	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	b.fill(t, 5, time.Hour, ledger.Completed, false)
	_, err = tx.Exec(t.Context(), "SELECT FROM platform_idempotency_keys ORDER BY expires_at LIMIT 2 FOR UPDATE")
	require.NoError(t, err)
	require.Equal(t, 3, b.prune(t, 10), "locked rows are passed over, and not waited for")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 2, b.prune(t, 10))
}

func TestPruneLeavesARowThatIsTakenOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := records(request("a"))
	_, err := b.execute(t, req, failsAfter("a", errBody))
	require.Same(t, errBody, err)
	b.exec(t, "UPDATE platform_idempotency_keys SET expires_at = clock_timestamp() - interval '1 hour'")
	_, err = b.execute(t, req, func(ctx context.Context) (ledger.Outcome, error) {
		if err := ledgertest.Effect(ctx, "a"); err != nil {
			return ledger.Outcome{}, err
		}
		assert.Zero(t, b.prune(t, 10), "its claim is open")
		return outcome("done"), nil
	})
	require.NoError(t, err)
	require.Zero(t, b.prune(t, 10))
	_, err = b.execute(t, req, never(t))
	require.NoError(t, err)
}

func TestPruneRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, limit := range []int{0, -1, ledger.MaxPrune + 1} {
		_, err := b.store.Prune(t.Context(), limit)
		require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
	}
	for _, limit := range []int{0, ledger.MaxPruneBatch + 1} {
		_, err := b.store.PruneBatch(t.Context(), ledger.PruneRange{}, limit, time.Second)
		require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
	}
	_, err := b.store.PruneBatch(t.Context(), ledger.PruneRange{}, 1, 0)
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
	_, err = ledger.NewStore(ledger.Config{
		Pool: b.pool, LongestRetention: time.Millisecond, PruneInterval: -1, PruneBatch: ledger.MaxPruneBatch + 1, PruneTimeout: -1,
	})
	for _, field := range []string{"LongestRetention", "PruneInterval", "PruneBatch", "PruneTimeout"} {
		require.ErrorContains(t, err, "Config."+field+" is ")
	}
}

// TestPruneCountsWhatIsSure: the answer of a COMMIT is lost.
func TestPruneCountsWhatIsSure(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]wire.Action{"committed": wire.CutAfter, "rolled back": wire.CutBefore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setupWired(t)
			w.fill(t, 10, time.Hour, ledger.Completed, false)
			lost := w.proxy.Arm(wire.Rule{Match: wire.Contains("SKIP LOCKED"), Action: action})
			n, err := w.store.Prune(t.Context(), 10)
			require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err))
			require.Zero(t, n)
			<-lost.Settled()
			again := w.prune(t, 100)
			if action == wire.CutAfter {
				require.Zero(t, again)
			} else {
				require.Equal(t, 10, again)
			}
			require.Zero(t, w.count(t, "platform_idempotency_keys"))
		})
	}
}

// TestPruneCosts: one round trip for a batch, in each of pgx's modes, with a
// pool of one connection, and nothing stays set in the session.
func TestPruneCosts(t *testing.T) {
	t.Parallel()
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setupWired(t, inMode(mode), func(c *pgxpool.Config) { c.MaxConns = 1 })
			batch := func() ledger.Pruned {
				p, err := w.store.PruneBatch(t.Context(), ledger.PruneRange{}, 10, time.Second)
				require.NoError(t, err)
				return p
			}
			w.fill(t, 20, time.Hour, ledger.Completed, false)
			require.Equal(t, 10, batch().Rows)
			w.proxy.ResetStats()
			require.Equal(t, 10, batch().Rows)
			want := 1
			if mode == pgx.QueryExecModeDescribeExec {
				want = 2
			}
			require.Equal(t, want, w.proxy.Stats().RoundTrips)
			require.True(t, batch().Done)
			var timeout, seqscan string
			require.NoError(t, w.link.QueryRow(t.Context(), "SELECT current_setting('statement_timeout'), current_setting('enable_seqscan')").Scan(&timeout, &seqscan))
			require.Equal(t, "0/on", timeout+"/"+seqscan)
		})
	}
}
