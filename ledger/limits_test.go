package ledger_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

func limited(l ledger.Limits) func(*ledger.Config) {
	return func(c *ledger.Config) { c.Limits = l }
}

func TestLimitsDefaultsAndFaults(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, ledger.Limits{
		MaxConcurrent: 1000, MaxKeyBytes: 256, MaxInputBytes: 1 << 20,
		Timeout: time.Minute, Wait: 5 * time.Second, Retention: 7 * 24 * time.Hour,
	}, b.store.Config().Limits)
	_, err := ledger.NewStore(ledger.Config{Pool: b.pool, Limits: ledger.Limits{
		Quota: -1, MaxKeyBytes: 15, MaxInputBytes: -1, Timeout: 1, Retention: 1,
	}})
	for _, text := range []string{
		"Limits.Quota is -1", "Limits.MaxKeyBytes is 15: use 16 to 256", "Limits.MaxInputBytes is -1",
		"Limits.Timeout is 1ns: use at least 1ms", "Limits.Retention is 1ns: use at least 1s",
	} {
		require.ErrorContains(t, err, text)
	}
}

func TestOneExecutionTooManyIsOverloaded(t *testing.T) {
	t.Parallel()
	b := setup(t, limited(ledger.Limits{MaxConcurrent: 2}))
	inside, leave, left := make(chan struct{}), make(chan struct{}), make(chan error)
	for _, name := range []string{"a", "b"} {
		go func() {
			_, err := b.store.Execute(t.Context(), request(name), func(ctx context.Context) (ledger.Outcome, error) {
				inside <- struct{}{}
				<-leave
				return outcome(name), ledgertest.Effect(ctx, name)
			})
			left <- err
		}()
		<-inside
	}
	_, err := b.execute(t, request("c"), never(t))
	require.Equal(t, ledger.CodeOverloaded, ledger.CodeOf(err))
	require.True(t, ledger.CodeOf(err).Retryable())
	require.ErrorContains(t, err, "2 executions are running in this process")
	close(leave)
	for range 2 {
		require.NoError(t, <-left)
	}
	for range 3 { // the places are free again, after a failure too
		_, err = b.execute(t, request("c"), func(context.Context) (ledger.Outcome, error) { return ledger.Outcome{}, errors.New("no") })
		require.EqualError(t, err, "no")
	}
	_, err = b.execute(t, request("c"), writes("c"))
	require.NoError(t, err)
}

func TestExecutionsWithoutABound(t *testing.T) {
	t.Parallel()
	b := setup(t, limited(ledger.Limits{MaxConcurrent: -1}))
	var inside, all sync.WaitGroup
	const many = 1001 // over the default
	inside.Add(many)
	for i := range many {
		all.Add(1)
		go func() {
			defer all.Done()
			req := request(fmt.Sprint(i))
			req.Fresh = true
			_, err := b.store.Execute(t.Context(), req, func(context.Context) (ledger.Outcome, error) {
				inside.Done()
				inside.Wait()
				return ledger.Outcome{}, errors.New("no")
			})
			assert.EqualError(t, err, "no")
		}()
	}
	all.Wait()
}

// owners are whose quotas are counted apart, and the requests of each.
func owned(name string, o ledger.Owner) map[string]ledger.Request {
	late, leased := request(name), request(name)
	late.Owner, leased.Owner = o, o
	atOnce := late
	atOnce.Begin = ledger.BeginAtOnce
	leased.Begin = ledger.BeginLeased
	return map[string]ledger.Request{"late": late, "at once": atOnce, "leased": leased}
}

// body is one that suits the request.
func suits(req ledger.Request, name string) ledger.Body {
	if req.Begin == ledger.BeginLeased {
		return func(context.Context) (ledger.Outcome, error) { return outcome(name), nil }
	}
	return writes(name)
}

func TestQuotaIsTheOwners(t *testing.T) {
	t.Parallel()
	b := setup(t, limited(ledger.Limits{Quota: 2}))
	for _, o := range []ledger.Owner{ledger.Platform(), ledger.Tenant(ledgertest.TenantA), ledger.Tenant(ledgertest.TenantB)} {
		for _, name := range []string{"a", "b"} {
			req := request(name)
			req.Owner, req.Begin, req.Retention = o, ledger.BeginAtOnce, time.Hour
			_, err := b.execute(t, req, writes(name))
			require.NoError(t, err, o)
		}
		for mode, req := range owned("c", o) {
			_, err := b.execute(t, req, func(ctx context.Context) (ledger.Outcome, error) {
				_, err := ledger.Tx(ctx)
				assert.Error(t, err, "only a late body runs, and gets no transaction")
				return outcome("c"), err
			})
			require.Equal(t, ledger.CodeQuota, ledger.CodeOf(err), "%s %s", o, mode)
			require.ErrorContains(t, err, "the owner keeps 2 rows")
			var e *ledger.Error
			require.ErrorAs(t, err, &e)
			require.InDelta(t, time.Hour, e.RetryAfter, float64(time.Minute))
			_, there := b.row(t, req)
			require.False(t, there)
		}
		for _, req := range owned("a", o) { // replays need no room
			r, err := b.execute(t, req, never(t))
			require.NoError(t, err, o)
			require.Equal(t, ledger.LedgerReplay, r.Source)
		}
	}
	require.Zero(t, b.effects(t, "c"))

	// Expired rows don't count, though they are still there and still replayed.
	b.exec(t, "UPDATE platform_idempotency_keys SET expires_at = clock_timestamp() WHERE idempotency_key = $1", keyOf("a"))
	b.exec(t, "UPDATE idempotency_keys SET expires_at = clock_timestamp() WHERE idempotency_key = $1", keyOf("a"))
	for _, o := range []ledger.Owner{ledger.Platform(), ledger.Tenant(ledgertest.TenantA)} {
		req := owned("c", o)["at once"]
		_, err := b.execute(t, req, writes("c"))
		require.NoError(t, err, o)
		r, err := b.execute(t, owned("a", o)["late"], never(t))
		require.NoError(t, err)
		require.Equal(t, ledger.LedgerReplay, r.Source)
		_, err = b.execute(t, owned("d", o)["at once"], never(t))
		require.Equal(t, ledger.CodeQuota, ledger.CodeOf(err))
	}
}

func keyOf(name string) []byte { k := request(name).Key; return k[:] }

// TestQuotaLeavesARetryItsRow: a failed key keeps its room, at the quota too.
func TestQuotaLeavesARetryItsRow(t *testing.T) {
	t.Parallel()
	b := setup(t, limited(ledger.Limits{Quota: 1}))
	for mode, req := range owned("a", ledger.Tenant(ledgertest.TenantA)) {
		req.Key[0], req.Failure = mode[0], func(error) ledger.Failure {
			return ledger.Failure{Status: ledger.FailedRetryable, Outcome: outcome("no")}
		}
		_, err := b.execute(t, req, func(ctx context.Context) (ledger.Outcome, error) {
			if req.Begin != ledger.BeginLeased {
				require.NoError(t, ledgertest.Effect(ctx, mode))
			}
			return ledger.Outcome{}, errors.New("no")
		})
		require.EqualError(t, err, "no")
		r, err := b.execute(t, req, suits(req, mode))
		require.NoError(t, err, mode)
		require.Equal(t, int32(2), r.Attempt, mode)
		b.exec(t, "DELETE FROM idempotency_keys")
	}
}

// TestQuotaIsPassedByTheConcurrencyAtMost: those that claim at one moment don't
// see each other's rows.
func TestQuotaIsPassedByTheConcurrencyAtMost(t *testing.T) {
	t.Parallel()
	const quota, workers, each = 5, 4, 10
	b := setup(t, limited(ledger.Limits{Quota: quota}))
	var all sync.WaitGroup
	for w := range workers {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range each {
				req := request(fmt.Sprint(w, i))
				req.Owner, req.Begin = ledger.Tenant(ledgertest.TenantA), ledger.BeginAtOnce
				_, err := b.store.Execute(t.Context(), req, writes("some"))
				if err != nil {
					assert.Equal(t, ledger.CodeQuota, ledger.CodeOf(err))
				}
			}
		}()
	}
	all.Wait()
	require.GreaterOrEqual(t, b.effects(t, "some"), quota)
	require.Less(t, b.effects(t, "some"), quota+workers)
}

// TestQuotaReadsItsOwnNumberOfRows: of the owner, whatever else is in the table.
func TestQuotaReadsItsOwnNumberOfRows(t *testing.T) {
	t.Parallel()
	const quota = 50
	b := setup(t, limited(ledger.Limits{Quota: quota}))
	for _, table := range []string{"platform_idempotency_keys (", "idempotency_keys (tenant_id, "} {
		// Many expired, many of another tenant, and more than the quota of the one asked for.
		for i, some := range []struct {
			tenant, rows int64
			expires      string
		}{
			{ledgertest.TenantA, 4000, "-1 hour"},
			{ledgertest.TenantB, 4000, "1 hour"},
			{ledgertest.TenantA, 3000, "2 hours"},
		} {
			columns, owner := table, ""
			if strings.Contains(table, "tenant_id") {
				owner = fmt.Sprint(some.tenant, ", ")
			} else if some.tenant == ledgertest.TenantB {
				continue
			}
			b.exec(t, fmt.Sprintf(`INSERT INTO %sidempotency_key, request_fingerprint, status, expires_at)
SELECT %ssha256(('%d/' || n)::bytea), sha256('x'), 'completed', clock_timestamp() + interval '%s' + n * interval '1 millisecond'
  FROM generate_series(1, %d) n`, columns, owner, i, some.expires, some.rows))
		}
	}
	for _, statistics := range []string{"", "ANALYZE"} {
		b.exec(t, statistics)
		for _, o := range []ledger.Owner{ledger.Platform(), ledger.Tenant(ledgertest.TenantA)} {
			read := b.reads(t, o)
			require.LessOrEqual(t, read, float64(quota), "%s after %q", o, statistics)
			require.Positive(t, read)
		}
	}
	_, err := b.execute(t, owned("new", ledger.Tenant(ledgertest.TenantA))["at once"], never(t))
	require.Equal(t, ledger.CodeQuota, ledger.CodeOf(err))
}

// reads counts the rows that the quota's scans of the table by expiry read.
func (b *bundle) reads(t *testing.T, o ledger.Owner) float64 {
	t.Helper()
	args := []any{keyOf("new")}
	if id, ok := o.TenantID(); ok {
		args = []any{id, args[0]}
	}
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	_, err = tx.Exec(t.Context(), ledger.QuotaPlan)
	require.NoError(t, err)
	var text []byte
	require.NoError(t, tx.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+b.store.QuotaStatement(o), args...).Scan(&text))
	var plans []struct{ Plan plan }
	require.NoError(t, json.Unmarshal(text, &plans))
	return plans[0].Plan.rows()
}

type plan struct {
	Node    string  `json:"Node Type"`
	Rows    float64 `json:"Actual Rows"`
	Loops   float64 `json:"Actual Loops"`
	Removed float64 `json:"Rows Removed by Filter"`
	Plans   []plan  `json:"Plans"`
}

// rows sums what the scans read, rows that a filter removed included.
func (p plan) rows() (n float64) {
	if strings.Contains(p.Node, "Scan") {
		n = (p.Rows + p.Removed) * p.Loops
	}
	for _, inner := range p.Plans {
		n += inner.rows()
	}
	return n
}

func TestTimeoutEndsAnExecution(t *testing.T) {
	t.Parallel()
	b := setup(t, limited(ledger.Limits{Timeout: 300 * time.Millisecond}))
	_, err := b.execute(t, request("a"), func(ctx context.Context) (ledger.Outcome, error) {
		if err := ledgertest.Effect(ctx, "a"); err != nil {
			return ledger.Outcome{}, err
		}
		<-ctx.Done()
		return ledger.Outcome{}, ctx.Err()
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, b.effects(t, "a"))

	leased := request("b") // a lease is renewed for as long as the work takes
	leased.Begin = ledger.BeginLeased
	_, err = b.execute(t, leased, func(ctx context.Context) (ledger.Outcome, error) {
		_, bounded := ctx.Deadline()
		assert.False(t, bounded)
		return outcome("b"), nil
	})
	require.NoError(t, err)
}

func TestRequestsGetTheLimitsTheyDoNotSay(t *testing.T) {
	t.Parallel()
	b := setup(t, limited(ledger.Limits{Retention: 2 * time.Hour, Wait: -1, Timeout: -1}))
	got, err := b.execute(t, ledger.Request{Key: request("a").Key, Fingerprint: request("a").Fingerprint}, func(ctx context.Context) (ledger.Outcome, error) {
		_, bounded := ctx.Deadline()
		assert.False(t, bounded)
		_, err := b.execute(t, ledger.Request{Key: request("b").Key, Fingerprint: request("b").Fingerprint}, writes("b"))
		assert.NoError(t, err)
		return outcome("a"), ledgertest.Effect(ctx, "a")
	})
	require.NoError(t, err)
	require.InDelta(t, 2*time.Hour, got.Left, float64(time.Minute))
	b.leased(t, request("c"), time.Hour)
	_, err = b.execute(t, ledger.Request{Key: request("c").Key, Fingerprint: request("c").Fingerprint}, never(t))
	require.Equal(t, ledger.CodeInFlight, ledger.CodeOf(err), "at once: no wait")
}

func TestRunKeepsTheLimits(t *testing.T) {
	t.Parallel()
	b := setup(t, limited(ledger.Limits{MaxKeyBytes: 20, MaxInputBytes: 30, Retention: 2 * time.Hour}))
	op, s := placing(t), scope(t, ledger.Platform(), "alice")
	_, err := op.Run(t.Context(), b.store, s, clientKey(t, strings.Repeat("k", 21)), order{}, unplaced(t))
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
	require.ErrorContains(t, err, "run orders.place: the key has 21 bytes, the limit is 20 (Limits.MaxKeyBytes)")
	_, err = op.Run(t.Context(), b.store, s, clientKey(t, "k"), order{Item: strings.Repeat("i", 20)}, unplaced(t))
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
	require.ErrorContains(t, err, "the input has 41 bytes, the limit is 30 (Limits.MaxInputBytes)")
	_, err = op.Run(t.Context(), b.store, s, clientKey(t, strings.Repeat("k", 20)), order{}, places)
	require.NoError(t, err)
	var left time.Duration
	require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT expires_at - clock_timestamp() FROM platform_idempotency_keys").Scan(&left))
	require.InDelta(t, 2*time.Hour, left, float64(time.Minute))

	small := setup(t, func(c *ledger.Config) { c.MaxResultBytes = 10 })
	_, err = op.Run(t.Context(), small.store, s, clientKey(t, "k"), order{Item: "a", Count: 1_000_000}, places)
	require.Equal(t, ledger.CodeResultTooLarge, ledger.CodeOf(err))
	require.Zero(t, small.effects(t, "a"))
}

// An owner's quota bounds what it keeps. A replay needs no room.
func ExampleLimits() {
	itest.Example(func(t testing.TB) {
		store, err := ledger.NewStore(ledger.Config{
			Pool:   itest.Pool(t, ledgertest.Database(t)),
			Limits: ledger.Limits{MaxConcurrent: 100, Quota: 1, Timeout: 10 * time.Second},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = store.Close(context.WithoutCancel(t.Context())) }()
		op := newOperation(t, ledger.OperationOptions[string, string]{ID: "greet"})
		for _, name := range []string{"ann", "ann", "bob"} {
			answer, err := op.Run(t.Context(), store, scope(t, ledger.Tenant(1), "worker"), clientKey(t, name), name,
				func(_ context.Context, _ pgx.Tx, name string) (string, error) { return "hello " + name, nil })
			fmt.Printf("%q %t %q\n", answer.Value(), answer.Replayed(), ledger.CodeOf(err))
		}
	})
	// Output:
	// "hello ann" false ""
	// "hello ann" true ""
	// "" false "quota"
}
