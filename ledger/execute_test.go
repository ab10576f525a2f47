package ledger_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

// The matrix of beginnings and owners that every execution must be the same under.
func requests(name string) map[string]ledger.Request {
	m := map[string]ledger.Request{}
	for owner, o := range map[string]ledger.Owner{"platform": ledger.Platform(), "tenant": ledger.Tenant(ledgertest.TenantA)} {
		for begin, b := range map[string]ledger.Begin{"late": ledger.BeginLate, "at once": ledger.BeginAtOnce} {
			for fresh, f := range map[string]bool{"fresh": true, "not fresh": false} {
				req := request(name)
				req.Owner, req.Begin, req.Fresh = o, b, f
				m[owner+", "+begin+", "+fresh] = req
			}
		}
	}
	return m
}

func TestExecuteOnceThenReplay(t *testing.T) {
	t.Parallel()
	for name, req := range requests("a") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			first, err := b.execute(t, req, writes("a"))
			require.NoError(t, err)
			require.Equal(t, ledger.Executed, first.Source)
			require.Equal(t, outcome("did a"), first.Outcome)
			require.Equal(t, int32(1), first.Attempt)
			require.Positive(t, first.Left)

			again, err := b.execute(t, req, func(ctx context.Context) (ledger.Outcome, error) {
				// A fresh, late body only learns it from Tx.
				_, err := ledger.Tx(ctx)
				assert.ErrorIs(t, err, ledger.ErrReplay)
				return outcome("another"), nil
			})
			require.NoError(t, err)
			require.Equal(t, ledger.LedgerReplay, again.Source)
			require.Equal(t, ledger.Completed, again.Status)
			require.Equal(t, first.Outcome, again.Outcome)
			require.Equal(t, first.RowID, again.RowID)
			require.Equal(t, 1, b.effects(t, "a"))
		})
	}
}

func TestNotFreshBodyIsNotEvenBegun(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := request("a")
	_, err := b.execute(t, req, writes("a"))
	require.NoError(t, err)
	again, err := b.execute(t, req, never(t))
	require.NoError(t, err)
	require.Equal(t, ledger.LedgerReplay, again.Source)
}

func TestTheSameKeyUnderTwoOwnersIsTwoEffects(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, o := range []ledger.Owner{ledger.Platform(), ledger.Tenant(ledgertest.TenantA), ledger.Tenant(ledgertest.TenantB)} {
		req := request("a")
		req.Owner = o
		r, err := b.execute(t, req, writes("a"))
		require.NoError(t, err)
		require.Equal(t, ledger.Executed, r.Source)
	}
	require.Equal(t, 3, b.effects(t, "a"))
}

func TestUnknownTenantIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := request("a")
	req.Owner = ledger.Tenant(404)
	_, err := b.execute(t, req, writes("a"))
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
	require.ErrorContains(t, err, "tenant:404 is not in the tenants table")
	require.NotContains(t, err.Error(), "violates")
	require.Zero(t, b.effects(t, "a"))
}

func TestResultsOfAnyShapeAreReplayedByteForByte(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, data := range map[string][]byte{
		"none":                      nil,
		"empty":                     {},
		"small":                     []byte("\x00\"\\é"),
		"the last that fits":        make([]byte, 3048),
		"the first that doesn't":    make([]byte, 3049),
		"a good deal":               []byte(strings.Repeat("x", 5000)),
		"as much as Temporal takes": []byte(strings.Repeat("y", 2<<20)),
	} {
		for _, asks := range []bool{true, false} {
			key := name
			if asks {
				key += ", in a transaction"
			}
			body := func(ctx context.Context) (ledger.Outcome, error) {
				if asks {
					if err := ledgertest.Effect(ctx, key); err != nil {
						return ledger.Outcome{}, err
					}
				}
				return ledger.Outcome{Encoding: "test/1", Data: data}, nil
			}
			_, err := b.execute(t, request(key), body)
			require.NoError(t, err, key)
			again, err := b.execute(t, request(key), never(t))
			require.NoError(t, err, key)
			require.Equal(t, data == nil, again.Outcome.Data == nil, key)
			require.Equal(t, string(data), string(again.Outcome.Data), key)
		}
	}
	var inline, side int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT max(octet_length(outcome::text)),
		(SELECT count(*) FROM platform_idempotency_payloads) FROM platform_idempotency_keys`).Scan(&inline, &side))
	require.Equal(t, 4096, inline, "the boundary must be met exactly")
	require.Equal(t, 6, side)
}

func TestTooLargeIsRolledBack(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ledger.Config) { c.MaxResultBytes = 10 })
	_, err := b.execute(t, request("a"), func(ctx context.Context) (ledger.Outcome, error) {
		return outcome("eleven byte"), ledgertest.Effect(ctx, "a")
	})
	require.Equal(t, ledger.CodeResultTooLarge, ledger.CodeOf(err))
	require.Zero(t, b.effects(t, "a"))
	_, ok := b.row(t, request("a"))
	require.False(t, ok)
}

func TestMismatchIsFoundOnEveryPathAndChangesNothing(t *testing.T) {
	t.Parallel()
	for name, req := range requests("a") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			_, err := b.execute(t, req, writes("a"))
			require.NoError(t, err)
			before, _ := b.row(t, req)

			other := req
			other.Fingerprint = request("other").Fingerprint
			_, err = b.execute(t, other, writes("a"))
			require.Equal(t, ledger.CodeMismatch, ledger.CodeOf(err))
			after, _ := b.row(t, req)
			before.Left, after.Left = 0, 0
			require.Equal(t, before, after)
			require.Equal(t, 1, b.effects(t, "a"))
		})
	}
}

func TestABodyThatNeverAsksHoldsNoConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := request("a")
	req.Fresh = true
	_, err := b.execute(t, req, func(context.Context) (ledger.Outcome, error) {
		assert.Zero(t, b.pool.Stat().AcquiredConns())
		return outcome("did a"), nil
	})
	require.NoError(t, err)
	req.Fresh = false
	again, err := b.execute(t, req, never(t))
	require.NoError(t, err)
	require.Equal(t, outcome("did a"), again.Outcome)
}

func TestTwoBodiesThatNeverAskedAnswerTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := request("a")
	req.Fresh = true
	r, err := b.execute(t, req, func(context.Context) (ledger.Outcome, error) {
		_, err := b.execute(t, req, func(context.Context) (ledger.Outcome, error) { return outcome("first"), nil })
		return outcome("second"), err
	})
	require.NoError(t, err)
	require.Equal(t, outcome("first"), r.Outcome)
	require.Equal(t, ledger.LedgerReplay, r.Source)
}

func TestRivalsWithOneKeyRunOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := request("a")
	req.Wait = 20 * time.Second
	var wg sync.WaitGroup
	results := make([]ledger.Result, 8)
	errs := make([]error, len(results))
	for i := range results {
		wg.Add(1)
		go func() {
			defer wg.Done()
			results[i], errs[i] = b.store.Execute(t.Context(), req, writes("a"))
		}()
	}
	wg.Wait()
	executed := 0
	for i, r := range results {
		require.NoError(t, errs[i])
		require.Equal(t, outcome("did a"), r.Outcome)
		if r.Source == ledger.Executed {
			executed++
		}
	}
	require.Equal(t, 1, executed)
	require.Equal(t, 1, b.effects(t, "a"))
}

func TestARivalsOpenTransactionIsInFlight(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := request("a")
	req.Fresh = true
	_, err := b.execute(t, req, func(ctx context.Context) (ledger.Outcome, error) {
		if err := ledgertest.Effect(ctx, "a"); err != nil {
			return ledger.Outcome{}, err
		}
		_, err := b.execute(t, req, writes("a"))
		assert.Equal(t, ledger.CodeInFlight, ledger.CodeOf(err))
		return outcome("did a"), nil
	})
	require.NoError(t, err)
	require.Equal(t, 1, b.effects(t, "a"))
}

func TestALeaseIsInFlightAndTakenOverWhenItIsOver(t *testing.T) {
	t.Parallel()
	for name, req := range requests("a") {
		if _, tenant := req.Owner.TenantID(); tenant {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.leased(t, req, time.Hour)
			_, err := b.execute(t, req, writes("a"))
			require.Equal(t, ledger.CodeInFlight, ledger.CodeOf(err))
			var e *ledger.Error
			require.ErrorAs(t, err, &e)
			require.InDelta(t, time.Hour, e.RetryAfter, float64(time.Minute))
			require.Zero(t, b.effects(t, "a"))

			b.exec(t, "UPDATE platform_idempotency_keys SET expires_at = clock_timestamp() - interval '1 second'")
			r, err := b.execute(t, req, writes("a"))
			require.NoError(t, err)
			require.Equal(t, ledger.Executed, r.Source)
			require.Equal(t, int32(2), r.Attempt)
			require.Equal(t, 1, b.effects(t, "a"))
		})
	}
}

func TestAFinishedRowCountsUntilItIsDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.execute(t, request("a"), writes("a"))
	require.NoError(t, err)
	b.exec(t, "UPDATE platform_idempotency_keys SET expires_at = clock_timestamp() - interval '1 year'")
	r, err := b.execute(t, request("a"), writes("a"))
	require.NoError(t, err)
	require.Equal(t, ledger.LedgerReplay, r.Source)
	require.Equal(t, 1, b.effects(t, "a"))
}

func TestAPoolOfOneFinishesFifty(t *testing.T) {
	t.Parallel()
	dsn := ledgertest.Database(t)
	pool := itest.Pool(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 1 })
	store := ledgertest.Store(t, pool)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	errs := make([]error, 50)
	for i := range errs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			req := request("a" + strings.Repeat("x", i))
			req.Fresh = i%2 == 0
			_, errs[i] = store.Execute(ctx, req, writes("pool"))
		}()
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Equal(t, 50, ledgertest.Effects(t, pool, "pool"))
}

func TestIsolationLevels(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			req := request("a")
			req.Isolation, req.Fresh = level, true
			for range 2 {
				_, err := b.execute(t, req, func(ctx context.Context) (ledger.Outcome, error) {
					tx, err := ledger.Tx(ctx)
					if err != nil {
						return ledger.Outcome{}, err
					}
					var is string
					if err := tx.QueryRow(ctx, "SHOW transaction_isolation").Scan(&is); err != nil {
						return ledger.Outcome{}, err
					}
					assert.Equal(t, string(level), is)
					return outcome("did a"), ledgertest.Write(ctx, tx, "a")
				})
				require.NoError(t, err)
			}
			require.Equal(t, 1, b.effects(t, "a"))
		})
	}
}

func TestTheBodysSettingsAreWhatTheyWere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	show := func(ctx context.Context, q interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	},
	) (s [3]string) {
		err := q.QueryRow(ctx, "SELECT current_setting('lock_timeout'), current_setting('search_path'), current_setting('statement_timeout')").Scan(&s[0], &s[1], &s[2])
		assert.NoError(t, err)
		return s
	}
	before := show(t.Context(), b.pool)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := b.store.Execute(ctx, request("a"), func(ctx context.Context) (ledger.Outcome, error) {
		tx, err := ledger.Tx(ctx)
		if err != nil {
			return ledger.Outcome{}, err
		}
		assert.Equal(t, before, show(ctx, tx))
		// Both end with the attempt, where the server has both (PostgreSQL 17).
		var limits []int
		assert.NoError(t, tx.QueryRow(ctx, `SELECT array_agg(setting::int) FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout')`).Scan(&limits))
		for _, limit := range limits {
			assert.Positive(t, limit)
			assert.LessOrEqual(t, limit, 60_000)
		}
		return outcome("did a"), nil
	})
	require.NoError(t, err)
	require.Equal(t, before, show(t.Context(), b.pool))
	var limited int
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_settings
WHERE name IN ('idle_in_transaction_session_timeout', 'transaction_timeout') AND setting <> '0'`).Scan(&limited))
	require.Zero(t, limited)
}

func TestDeadlinePassedIsRefusedBeforeTheBody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	_, err := b.store.Execute(ctx, request("a"), never(t))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestABodyThatSucceededIsCommittedThoughItsCallerHasGone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := b.store.Execute(ctx, request("a"), func(ctx context.Context) (ledger.Outcome, error) {
		err := ledgertest.Effect(ctx, "a")
		cancel()
		return outcome("did a"), err
	})
	require.NoError(t, err)
	require.Equal(t, ledger.Executed, r.Source)
	require.Equal(t, 1, b.effects(t, "a"))
}

func TestClosedStoreRefuses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.store.Close(t.Context()))
	<-b.store.Done()
	_, err := b.execute(t, request("a"), never(t))
	require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err))
}

func TestPanicRollsBackAndGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.PanicsWithValue(t, "boom", func() {
		_, _ = b.execute(t, request("a"), func(ctx context.Context) (ledger.Outcome, error) {
			assert.NoError(t, ledgertest.Effect(ctx, "a"))
			panic("boom")
		})
	})
	require.Zero(t, b.effects(t, "a"))
	require.Zero(t, b.pool.Stat().AcquiredConns())
	r, err := b.execute(t, request("a"), writes("a"))
	require.NoError(t, err)
	require.Equal(t, ledger.Executed, r.Source)
}

func TestDeferredConstraintComesOutAsItIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE unique_later (n int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO unique_later VALUES (1)`)
	_, err := b.execute(t, request("a"), func(ctx context.Context) (ledger.Outcome, error) {
		tx, err := ledger.Tx(ctx)
		if err != nil {
			return ledger.Outcome{}, err
		}
		_, err = tx.Exec(ctx, "INSERT INTO unique_later VALUES (1)")
		return outcome("did a"), err
	})
	var pg *pgconn.PgError
	require.ErrorAs(t, err, &pg)
	require.Equal(t, "23505", pg.Code)
	require.Empty(t, ledger.CodeOf(err))
	_, ok := b.row(t, request("a"))
	require.False(t, ok)
}
