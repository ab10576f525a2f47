package ledger_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/internal/servers"
	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/ledger"
)

// wired is a bundle whose store reaches the server through a proxy; its own
// pool goes straight.
type wired struct {
	*bundle
	proxy *wire.Proxy
	dsn   string // through the proxy
	link  *pgxpool.Pool
}

func setupWired(t *testing.T, configure ...func(*pgxpool.Config)) *wired {
	t.Helper()
	dsn := ledgertest.Database(t)
	proxy, through, err := wire.Through(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	link := itest.Pool(t, through, configure...)
	return &wired{
		bundle: &bundle{dsn: dsn, pool: itest.Pool(t, dsn), store: ledgertest.Store(t, link, func(c *ledger.Config) { c.FinishTimeout = 30 * time.Second })},
		proxy:  proxy, dsn: through, link: link,
	}
}

// modes are pgx's ways of sending a statement.
var modes = map[string]pgx.QueryExecMode{
	"cache statement": pgx.QueryExecModeCacheStatement,
	"exec":            pgx.QueryExecModeExec,
	"simple":          pgx.QueryExecModeSimpleProtocol,
	"cache describe":  pgx.QueryExecModeCacheDescribe,
	"describe exec":   pgx.QueryExecModeDescribeExec,
}

func inMode(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }
}

// TestCommitInDoubt is the signature case in its three resolutions: the
// connection dies while COMMIT is under way. The body never runs twice, nothing
// is recorded as a failure, and the answer is what really happened.
func TestCommitInDoubt(t *testing.T) {
	t.Parallel()
	for mode, m := range modes {
		for _, taken := range []bool{false, true} {
			name := mode + map[bool]string{true: ", taken over", false: ""}[taken]
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := setupWired(t, inMode(m))
				prepare := func(key string) ledger.Request {
					req := records(request(key))
					if taken {
						w.leased(t, req, -1)
					}
					return req
				}
				var runs atomic.Int32
				body := func(name string) ledger.Body {
					return func(ctx context.Context) (ledger.Outcome, error) {
						runs.Add(1)
						return writes(name)(ctx)
					}
				}

				t.Log("crash point: COMMIT executed, its answer lost")
				req := prepare("a")
				lost := w.proxy.Arm(wire.Rule{Match: wire.Commit(), Action: wire.CutAfter})
				r, err := w.execute(t, req, body("a"))
				require.NoError(t, err)
				<-lost.Fired()
				require.Equal(t, ledger.Executed, r.Source)
				require.Equal(t, 1, w.effects(t, "a"))
				row, _ := w.row(t, req)
				require.Equal(t, ledger.Completed, row.Status)
				require.Equal(t, r.RowID, row.ID)

				t.Log("crash point: COMMIT never reached the server")
				req = prepare("b")
				lost = w.proxy.Arm(wire.Rule{Match: wire.Commit(), Action: wire.CutBefore})
				_, err = w.execute(t, req, body("b"))
				<-lost.Fired()
				require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err))
				require.False(t, ledger.InDoubt(err), "%v", err)
				require.Zero(t, w.effects(t, "b"))
				row, ok := w.row(t, req)
				require.Equal(t, taken, ok, "no failure is recorded")
				if taken {
					require.Equal(t, ledger.Processing, row.Status)
				}

				t.Log("crash point: COMMIT arrives after the look-up has begun")
				req = prepare("c")
				late := w.proxy.Arm(wire.Rule{Match: wire.Commit(), Action: wire.CutClientHoldServer})
				asked := w.proxy.Arm(wire.Rule{Match: wire.AnswerTo(wire.Contains("pg_xact_status")), Do: func(*wire.Event) { late.Release() }})
				r, err = w.execute(t, req, body("c"))
				require.NoError(t, err)
				<-asked.Fired()
				require.Equal(t, ledger.Executed, r.Source)
				require.Equal(t, 1, w.effects(t, "c"))
				require.Equal(t, int32(3), runs.Load())
			})
		}
	}
}

// TestCommitStaysInDoubt: the backend is still inside COMMIT when patience ends.
func TestCommitStaysInDoubt(t *testing.T) {
	t.Parallel()
	w := setupWired(t)
	req := records(request("a"))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	store := ledgertest.Store(t, w.link, func(c *ledger.Config) { c.FinishTimeout = 100 * time.Millisecond })
	held := w.proxy.Arm(wire.Rule{Match: wire.Commit(), Action: wire.CutClientHoldServer})
	_, err := store.Execute(ctx, req, writes("a"))
	require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err))
	require.True(t, ledger.InDoubt(err))
	require.ErrorContains(t, err, "may have committed")
	held.Release()
	<-held.Settled()
	r, err := w.execute(t, req, never(t))
	require.NoError(t, err)
	require.Equal(t, ledger.LedgerReplay, r.Source)
	require.Equal(t, 1, w.effects(t, "a"))
}

// TestCommitInDoubtByADeadServer: PostgreSQL is killed at COMMIT, either side of it.
func TestCommitInDoubtByADeadServer(t *testing.T) {
	t.Parallel()
	server := itest.PrivatePostgres(t, servers.PostgresOptions{Durable: true})
	dsn := itest.DatabaseOn(t, server.URL())
	ledgertest.Migrate(t, dsn)
	proxy, through, err := wire.Through(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	link, pool := itest.Pool(t, through), itest.Pool(t, dsn)
	store := ledgertest.Store(t, link, func(c *ledger.Config) { c.FinishTimeout = 30 * time.Second })

	restart := func() {
		assert.NoError(t, server.Kill())
		go func() { assert.NoError(t, server.Restart(context.WithoutCancel(t.Context()))) }()
	}
	t.Log("crash point: PostgreSQL dies after COMMIT, before its answer")
	proxy.Arm(wire.Rule{Match: wire.AnswerTo(wire.Commit()), Action: wire.CutBefore, Do: func(*wire.Event) { restart() }})
	r, err := store.Execute(t.Context(), request("a"), writes("a"))
	require.NoError(t, err)
	require.Equal(t, ledger.Executed, r.Source)
	require.Equal(t, 1, ledgertest.Effects(t, pool, "a"))

	t.Log("crash point: PostgreSQL dies before COMMIT")
	proxy.Arm(wire.Rule{Match: wire.Commit(), Action: wire.CutBefore, Do: func(*wire.Event) { restart() }})
	_, err = store.Execute(t.Context(), request("b"), writes("b"))
	require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err))
	require.Zero(t, ledgertest.Effects(t, pool, "b"))
	r, err = store.Execute(t.Context(), request("b"), writes("b"))
	require.NoError(t, err)
	require.Equal(t, ledger.Executed, r.Source)
	require.Equal(t, 1, ledgertest.Effects(t, pool, "b"))
}

// TestClaimLost: whatever of the claim's round trip is lost, nothing has begun,
// and it is tried again without the body's knowing.
func TestClaimLost(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]wire.Action{"before": wire.CutBefore, "after": wire.CutAfter, "reset": wire.Reset} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setupWired(t)
			req := request("a")
			req.Fresh, req.Wait = true, 20*time.Second
			lost := w.proxy.Arm(wire.Rule{Match: wire.Contains("_claim("), Action: action})
			r, err := w.execute(t, req, writes("a"))
			require.NoError(t, err)
			<-lost.Fired()
			require.Equal(t, ledger.Executed, r.Source)
			require.Equal(t, 1, w.effects(t, "a"))
		})
	}
}

// TestTheBodysConnectionDies: rolled back, an error of the body's, then run again.
func TestTheBodysConnectionDies(t *testing.T) {
	t.Parallel()
	w := setupWired(t)
	w.proxy.Arm(wire.Rule{Match: wire.HasPrefix("insert into effects"), Action: wire.CutAfter})
	_, err := w.execute(t, records(request("a")), writes("a"))
	require.Error(t, err)
	require.Empty(t, ledger.CodeOf(err), "the body's own error: %v", err)
	req := records(request("a"))
	req.Wait = 20 * time.Second
	r, err := w.execute(t, req, writes("a"))
	require.NoError(t, err)
	require.Equal(t, ledger.Executed, r.Source)
	require.Equal(t, 1, w.effects(t, "a"))
}

// TestAVanishedHostIsEndedByTheDeadline: nothing comes from the worker any
// more, not even its connection's end; PostgreSQL ends the claim by itself.
func TestAVanishedHostIsEndedByTheDeadline(t *testing.T) {
	t.Parallel()
	w := setupWired(t)
	vanished := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := w.store.Execute(ctx, request("a"), func(ctx context.Context) (ledger.Outcome, error) {
			err := ledgertest.Effect(ctx, "a")
			w.proxy.BlackHole()
			<-ctx.Done()
			return ledger.Outcome{}, err
		})
		vanished <- err
	}()
	straight := ledgertest.Store(t, w.pool)
	req := request("a")
	req.Wait = 30 * time.Second
	<-w.proxyHole(t)
	r, err := straight.Execute(t.Context(), req, writes("b"))
	require.NoError(t, err)
	require.Equal(t, ledger.Executed, r.Source)
	require.Zero(t, w.effects(t, "a"))
	require.Equal(t, 1, w.effects(t, "b"))
	require.NoError(t, w.proxy.Heal())
	<-vanished
}

// proxyHole is closed once the first effect's statement was answered.
func (w *wired) proxyHole(t *testing.T) <-chan struct{} {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for t.Context().Err() == nil {
			var n int
			err := w.pool.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND state = 'idle in transaction' AND query ILIKE 'insert into effects%'`).Scan(&n)
			if err != nil || n > 0 {
				return
			}
		}
	}()
	return done
}

func TestAnUnreachableDatabaseIsUnavailable(t *testing.T) {
	t.Parallel()
	w := setupWired(t)
	w.proxy.Refuse()
	w.proxy.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	req := request("a")
	_, err := w.store.Execute(ctx, req, writes("a"))
	require.Equal(t, ledger.CodeUnavailable, ledger.CodeOf(err))
	req.Fresh = true
	r, err := w.store.Execute(ctx, req, func(context.Context) (ledger.Outcome, error) { return outcome("outside"), nil })
	require.NoError(t, err, "an effect outside of PostgreSQL has happened, kept or not")
	require.Equal(t, outcome("outside"), r.Outcome)
	require.Zero(t, r.Left)
	require.NoError(t, w.proxy.Heal())
	r, err = w.store.Execute(t.Context(), request("a"), writes("a"))
	require.NoError(t, err)
	require.Equal(t, ledger.Executed, r.Source)
}
