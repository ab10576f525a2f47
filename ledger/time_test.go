package ledger_test

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/ledger"
)

// TestTheClaimWaitsNoLongerThanTheAttempt: though the body asks with a context
// that has no end.
func TestTheClaimWaitsNoLongerThanTheAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := request("a")
	req.Fresh, req.Wait = true, time.Hour
	b.leased(t, req, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	_, err := b.store.Execute(ctx, req, func(ctx context.Context) (ledger.Outcome, error) {
		cancel()
		return outcome("did a"), ledgertest.Effect(context.WithoutCancel(ctx), "a")
	})
	require.ErrorIs(t, err, context.Canceled)
}

// TestAClaimLeftBehindWaitsForNobody: a goroutine that the body has left behind
// still waits for its claim.
func TestAClaimLeftBehindWaitsForNobody(t *testing.T) {
	t.Parallel()
	w := setupWired(t)
	req := request("a")
	req.Fresh, req.Wait = true, time.Hour
	w.leased(t, req, time.Hour)
	asked := w.proxy.Arm(wire.Rule{Match: wire.AnswerTo(wire.Contains("idempotency_claim"))})
	left := make(chan error, 1)
	_, err := w.execute(t, req, func(ctx context.Context) (ledger.Outcome, error) {
		go func() { left <- ledgertest.Effect(ctx, "a") }()
		<-asked.Fired()
		return outcome("did a"), nil
	})
	require.Error(t, err)
	require.Error(t, <-left)
	require.Zero(t, w.effects(t, "a"))
}

// TestTheTransactionsLimitIsTheAttempts: not that of a shorter context which the
// body has asked with.
func TestTheTransactionsLimitIsTheAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	_, err := b.store.Execute(ctx, request("a"), func(ctx context.Context) (ledger.Outcome, error) {
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		tx, err := ledger.Tx(short)
		if err != nil {
			return ledger.Outcome{}, err
		}
		var setting string
		err = tx.QueryRow(ctx, "SELECT extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval)::int").Scan(&setting)
		seconds, _ := strconv.Atoi(setting)
		assert.Greater(t, seconds, 3000)
		return outcome("did a"), err
	})
	require.NoError(t, err)
}

// TestAResultIsKeptInTimeOrNotAtAll: a body that never asked is answered by its
// deadline, though no connection can be had.
func TestAResultIsKeptInTimeOrNotAtAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool := itest.Pool(t, b.dsn, func(c *pgxpool.Config) { c.MaxConns = 1 })
	store := ledgertest.Store(t, pool, func(c *ledger.Config) { c.FinishTimeout = time.Hour })
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	req := request("a")
	req.Fresh = true
	held, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer held.Release()
	r, err := store.Execute(ctx, req, func(context.Context) (ledger.Outcome, error) { return outcome("did a"), nil })
	require.NoError(t, err)
	require.NoError(t, ctx.Err(), "the deadline has passed")
	require.Zero(t, r.RowID)
}

// TestAResultIsKeptThoughTheAnswerIsLost: once.
func TestAResultIsKeptThoughTheAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]wire.Action{"before": wire.CutBefore, "after": wire.CutAfter} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setupWired(t)
			req := request("a")
			lost := w.proxy.Arm(wire.Rule{Match: wire.Contains("idempotency_claim"), Action: action})
			r, err := w.execute(t, req, func(context.Context) (ledger.Outcome, error) { return outcome("did a"), nil })
			<-lost.Fired()
			require.NoError(t, err)
			require.Equal(t, outcome("did a"), r.Outcome)
			require.Equal(t, int32(1), r.Attempt)
			row, ok := w.row(t, req)
			require.True(t, ok)
			require.Equal(t, ledger.Completed, row.Status)
		})
	}
}

// TestWhatIsAnsweredIsFlushed: though the session's commits aren't waited for.
func TestWhatIsAnsweredIsFlushed(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{"off": "local", "local": "local", "on": "on"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			for _, table := range []string{"platform_idempotency_keys", "idempotency_keys"} {
				b.exec(t, `CREATE TABLE `+table+`_seen (status text, flush text);
CREATE FUNCTION `+table+`_see() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO `+table+`_seen VALUES (NEW.status, current_setting('synchronous_commit'));
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER see AFTER INSERT OR UPDATE ON `+table+` DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION `+table+`_see()`)
			}
			store := ledgertest.Store(t, itest.Pool(t, b.dsn, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["synchronous_commit"] = setting }))
			for _, owner := range []ledger.Owner{ledger.Platform(), ledger.Tenant(ledgertest.TenantA)} {
				run := func(name string, begin ledger.Begin, body ledger.Body) {
					req := request(name)
					req.Owner, req.Begin = owner, begin
					_, _ = store.Execute(t.Context(), req, body)
				}
				run("transaction", ledger.BeginLate, func(ctx context.Context) (ledger.Outcome, error) {
					tx, err := ledger.Tx(ctx)
					if err == nil && setting == "off" {
						_, err = tx.Exec(ctx, "SET LOCAL synchronous_commit = off")
					}
					return outcome("did"), err
				})
				run("never asked", ledger.BeginLate, func(context.Context) (ledger.Outcome, error) { return outcome("did"), nil })
				run("leased", ledger.BeginLeased, func(context.Context) (ledger.Outcome, error) { return outcome("did"), nil })
				run("slipped", ledger.BeginLate, func(ctx context.Context) (ledger.Outcome, error) {
					return outcome("did"), slip(ctx, t, []string{"rollback"})
				})
			}
			for _, table := range []string{"platform_idempotency_keys", "idempotency_keys"} {
				rows, err := b.pool.Query(t.Context(), "SELECT status || ' ' || flush FROM "+table+"_seen")
				require.NoError(t, err)
				seen, err := pgx.CollectRows(rows, pgx.RowTo[string])
				require.NoError(t, err)
				require.ElementsMatch(t, []string{
					"processing " + want, "completed " + want, // the transaction's insert and update
					"completed " + want,
					"processing " + want, "completed " + want,
					"failed_permanent " + want,
				}, seen)
			}
		})
	}
}

// TestFailurePanics: it is the program's function, and may.
func TestFailurePanics(t *testing.T) {
	t.Parallel()
	var said strings.Builder
	b := setup(t, func(c *ledger.Config) { c.Logger = slog.New(slog.NewTextHandler(&said, nil)) })
	req := request("a")
	req.Failure = func(error) ledger.Failure { panic("secret") }
	_, err := b.execute(t, req, failsAfter("a", errBody))
	require.Same(t, errBody, err)
	require.Zero(t, b.effects(t, "a"))
	_, ok := b.row(t, req)
	require.False(t, ok)
	require.Contains(t, said.String(), "Request.Failure panicked")
	require.NotContains(t, said.String(), "secret")
}
