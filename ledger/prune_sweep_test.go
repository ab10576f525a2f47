package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/clock"
	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

// slow makes each deleted row cost a hundredth of a second.
const slow = `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.01); RETURN OLD; END';
CREATE TRIGGER slow BEFORE DELETE ON platform_idempotency_keys FOR EACH ROW EXECUTE FUNCTION slow()`

func TestSweepTakesSmallerBatchesAfterATimeout(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ledger.Config) { c.PruneBatch, c.PruneTimeout = 200, 300*time.Millisecond })
	b.exec(t, slow)
	b.fill(t, 100, time.Hour, ledger.Completed, false)
	least := 200
	swept, err := b.store.Sweep(t.Context(), ledger.Sweep{}, func(s ledger.Swept) bool {
		least = min(least, s.Size)
		return true
	})
	require.NoError(t, err)
	require.Equal(t, 100, swept.Rows)
	require.True(t, swept.Done)
	require.Positive(t, swept.Shrunk)
	require.Less(t, least, 50)
	require.Zero(t, b.count(t, "platform_idempotency_keys"))

	b.exec(t, "DROP TRIGGER slow ON platform_idempotency_keys")
	b.fill(t, 500, time.Hour, ledger.Completed, false)
	again, err := b.store.Sweep(t.Context(), ledger.Sweep{Size: least}, nil)
	require.NoError(t, err)
	require.Equal(t, 500, again.Rows)
	require.Greater(t, again.Size, least, "and larger ones when they are quick")
}

func TestSweepGivesUpWhenTheLeastIsTooMuch(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ledger.Config) { c.PruneBatch, c.PruneTimeout = 40, 5*time.Millisecond })
	b.exec(t, slow)
	b.fill(t, 40, time.Hour, ledger.Completed, false)
	from := clock.Now().Add(-2 * time.Hour)
	swept, err := b.store.Sweep(t.Context(), ledger.Sweep{Range: ledger.PruneRange{From: from}}, nil)
	require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err))
	require.Zero(t, swept.Rows)
	require.False(t, swept.Done)
	require.Equal(t, 40, b.count(t, "platform_idempotency_keys"))
}

func TestSweepResumes(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ledger.Config) { c.PruneBatch = 10 })
	b.fill(t, 95, time.Hour, ledger.Completed, true)
	sweep := ledger.Sweep{Range: ledger.PruneRange{Tenants: true}}
	rows := 0
	for i := range 9 {
		swept, err := b.store.Sweep(t.Context(), sweep, func(s ledger.Swept) bool { return false })
		require.NoError(t, err)
		require.Equal(t, 10, swept.Rows, i)
		require.False(t, swept.Done)
		require.True(t, swept.Rest.From.After(sweep.Range.From))
		rows += swept.Rows
		sweep.Range = swept.Rest
	}
	swept, err := b.store.Sweep(t.Context(), sweep, nil)
	require.NoError(t, err)
	require.True(t, swept.Done)
	require.Equal(t, 95, rows+swept.Rows)
}

// TestPrunersSideBySide: many of them, while executions insert, take over and
// replay. Each row is counted once, and nothing deadlocks.
func TestPrunersSideBySide(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *ledger.Config) { c.PruneBatch = 20 })
	const rows, pruners = 2000, 4
	b.fill(t, rows, time.Hour, ledger.Completed, false)
	var (
		all    sync.WaitGroup
		counts [pruners]int
	)
	done := make(chan struct{})
	for i := range pruners {
		all.Add(1)
		go func() {
			defer all.Done()
			for range rows / 20 {
				p, err := b.store.PruneBatch(t.Context(), ledger.PruneRange{}, 20, 5*time.Second)
				if !assert.NoError(t, err) {
					return
				}
				counts[i] += p.Rows
			}
		}()
	}
	var load sync.WaitGroup
	for i := range 4 {
		load.Add(1)
		go func() {
			defer load.Done()
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				req := records(request(strconv.Itoa(n % 50)))
				req.Retention = time.Second
				body := writes("load")
				if (n+i)%3 == 0 {
					body = failsAfter("load", errBody)
				}
				if _, err := b.execute(t, req, body); err != nil && !errors.Is(err, errBody) {
					assert.Equal(t, ledger.CodeInFlight, ledger.CodeOf(err), "%v", err)
				}
			}
		}()
	}
	all.Wait()
	close(done)
	load.Wait()
	total := 0
	for _, n := range counts {
		total += n
	}
	require.GreaterOrEqual(t, total, rows)
	var deadlocks int
	require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks))
	require.Zero(t, deadlocks)
}

// TestPruneReadsWhatItDeletes: the plan is the index scan that stops at the
// limit, though the statistics say that nothing has expired.
func TestPruneReadsWhatItDeletes(t *testing.T) {
	t.Parallel()
	for name, analyze := range map[string]bool{"no statistics": false, "old statistics": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.fill(t, 3000, -time.Hour, ledger.Completed, false)
			if analyze {
				b.exec(t, "ANALYZE platform_idempotency_keys")
			}
			b.fill(t, 3000, time.Hour, ledger.Completed, false)
			settings, statement := b.store.PruneSQL()
			tx, err := b.pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			_, err = tx.Exec(t.Context(), settings, "5000")
			require.NoError(t, err)
			rows, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) "+statement,
				pgx.QueryExecModeExec, time.Time{}, (*time.Time)(nil), int64(0), int64(1000), 500)
			require.NoError(t, err)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			require.NoError(t, err)
			plan := fmt.Sprint(lines)
			require.Regexp(t, `Index Scan using platform_idempotency_keys_expires_at_idx on platform_idempotency_keys k \(actual rows=500(\.00)? loops=1\)`, plan)
			require.NotContains(t, plan, "Rows Removed by Filter")
			require.NotContains(t, plan, "Seq Scan")
		})
	}
}

func TestStartPrunesUntilClose(t *testing.T) {
	t.Parallel()
	dsn := ledgertest.Database(t)
	pool := itest.Pool(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 1 })
	store, err := ledger.NewStore(ledger.Config{Pool: pool, Tenants: true, PruneInterval: time.Millisecond})
	require.NoError(t, err)
	b := &bundle{dsn: dsn, pool: pool, store: store}
	b.fill(t, 10, time.Hour, ledger.Completed, false)
	require.NoError(t, store.Start(t.Context()))
	require.NoError(t, store.Start(t.Context()))
	for range 2 {
		require.Eventually(t, func() bool {
			return b.count(t, "platform_idempotency_keys") == 0 && b.count(t, "idempotency_keys") == 0
		}, 30*time.Second, time.Millisecond)
		b.fill(t, 10, 2*time.Hour, ledger.Completed, true)
		b.fill(t, 10, 2*time.Hour, ledger.Completed, false)
	}
	require.NoError(t, store.Close(t.Context()))
	<-store.Done()
	require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(store.Start(t.Context())))
}

// TestThePrunerOutlivesAFailingDatabase: executions don't hear of it.
func TestThePrunerOutlivesAFailingDatabase(t *testing.T) {
	t.Parallel()
	log := newLines()
	b := setup(t, func(c *ledger.Config) { c.PruneInterval, c.Logger = time.Millisecond, log.logger() })
	b.exec(t, "ALTER TABLE platform_idempotency_payloads RENAME TO elsewhere")
	b.fill(t, 10, time.Hour, ledger.Completed, false)
	require.NoError(t, b.store.Start(t.Context()))
	log.wait(t, "purge failed: expired rows stay for now")
	b.exec(t, "ALTER TABLE elsewhere RENAME TO platform_idempotency_payloads")
	require.Eventually(t, func() bool { return b.count(t, "platform_idempotency_keys") == 0 }, 30*time.Second, time.Millisecond)
}
