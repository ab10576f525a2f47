package interceptor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

// TestFailuresOfTheFirstAttempt: whatever ends it, the second one has the
// effect once.
func TestFailuresOfTheFirstAttempt(t *testing.T) {
	t.Parallel()
	for n, fails := range map[string]func(context.Context, pgx.Tx) (string, error){
		"panic": func(context.Context, pgx.Tx) (string, error) { panic("at the disco") },
		"error": func(context.Context, pgx.Tx) (string, error) { return "", errors.New("not yet") },
		"an SQL error is swallowed": func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, _ = tx.Exec(ctx, "select 1/0")
			return "did", nil
		},
		"the deadline passes after the effect": func(ctx context.Context, _ pgx.Tx) (string, error) {
			<-ctx.Done()
			return "did a", nil // the effect stands or falls with this answer
		},
		"the deadline passes, and it says so": func(ctx context.Context, _ pgx.Tx) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		},
		"rows left open": func(ctx context.Context, tx pgx.Tx) (string, error) {
			_, err := tx.Query(ctx, "select generate_series(1, 100000)") //nolint:sqlclosecheck // left open on purpose
			return "", errors.Join(err, errors.New("and fails"))
		},
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var runs atomic.Int32
			b.worker(t, func(w worker.Worker) {
				registerOne(w)
				w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
					tx, err := ledger.Tx(ctx)
					if err != nil {
						return "", err
					}
					if err := ledgertest.Write(ctx, tx, "a"); err != nil {
						return "", err
					}
					if runs.Add(1) == 1 {
						return fails(ctx, tx)
					}
					return "did a", nil
				}, name("fails"))
			})
			got, err := b.call(t, workflow.ActivityOptions{StartToCloseTimeout: 2 * time.Second}, "fails")
			require.NoError(t, err)
			require.Equal(t, "did a", got)
			require.Equal(t, 1, b.effects(t, "a"))
			require.LessOrEqual(t, runs.Load(), int32(2), "once in each attempt at most")
		})
	}
}

// TestTheDeadlinePassesBeforeTheEffect: nothing is written or recorded.
func TestTheDeadlinePassesBeforeTheEffect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var runs atomic.Int32
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
			if runs.Add(1) == 1 {
				<-ctx.Done()
				_, err := ledger.Tx(ctx)
				assert.ErrorIs(t, err, context.DeadlineExceeded)
			}
			return does(ctx, "a")
		}, name("slow"))
	})
	got, err := b.call(t, workflow.ActivityOptions{StartToCloseTimeout: time.Second}, "slow")
	require.NoError(t, err)
	require.Equal(t, "did a", got)
	require.Equal(t, 1, b.effects(t, "a"))
	require.Equal(t, []string{"completed/1"}, b.statuses(t), "the first attempt has left no row")
}

// TestCancellation: a body that has succeeded is committed all the same, one
// that gives up is rolled back, and nothing is recorded of it.
func TestCancellation(t *testing.T) {
	t.Parallel()
	for n, succeeds := range map[string]bool{"succeeds all the same": true, "gives up": false} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			entered := make(chan struct{})
			b.worker(t, func(w worker.Worker) {
				w.RegisterWorkflowWithOptions(func(ctx workflow.Context) (string, error) {
					ctx = workflow.WithActivityOptions(ctx, withDefaults(workflow.ActivityOptions{HeartbeatTimeout: 5 * time.Second, WaitForCancellation: true}))
					var did string
					err := workflow.ExecuteActivity(ctx, "waits").Get(ctx, &did)
					return did, err
				}, workflow.RegisterOptions{Name: "cancels"})
				w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
					did, err := does(ctx, "a")
					close(entered)
					beat := time.NewTicker(50 * time.Millisecond)
					defer beat.Stop()
					for ctx.Err() == nil {
						activity.RecordHeartbeat(ctx)
						select {
						case <-beat.C:
						case <-ctx.Done():
						}
					}
					if succeeds {
						return did, err
					}
					return "", ctx.Err()
				}, name("waits"))
			})
			run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, "cancels")
			require.NoError(t, err)
			<-entered
			require.NoError(t, b.client.CancelWorkflow(t.Context(), run.GetID(), run.GetRunID()))
			var did string
			err = run.Get(t.Context(), &did)
			if succeeds {
				require.NoError(t, err)
				require.Equal(t, "did a", did)
				require.Equal(t, 1, b.effects(t, "a"))
				return
			}
			var canceled *temporal.CanceledError
			require.ErrorAs(t, err, &canceled)
			require.Zero(t, b.effects(t, "a"))
			require.Empty(t, b.statuses(t))
		})
	}
}

// TestIsolation: by policy; a conflict is the attempt's error, and the body
// never runs twice within one attempt.
func TestIsolation(t *testing.T) {
	t.Parallel()
	for _, begin := range []ledger.Begin{ledger.BeginLate, ledger.BeginAtOnce} {
		for level, conflicts := range map[pgx.TxIsoLevel]bool{pgx.ReadCommitted: false, pgx.RepeatableRead: true, pgx.Serializable: true} {
			t.Run(string(level), func(t *testing.T) {
				t.Parallel()
				b := setup(t, policies(map[string]interceptor.Policy{"counts": {Isolation: level, Begin: begin}}))
				_, err := b.pool.Exec(t.Context(), "CREATE TABLE counter (n int); INSERT INTO counter VALUES (0)")
				require.NoError(t, err)
				var runs atomic.Int32
				b.worker(t, func(w worker.Worker) {
					registerOne(w)
					w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
						tx, err := ledger.Tx(ctx)
						if err != nil {
							return "", err
						}
						assert.Equal(t, runs.Add(1), activity.GetInfo(ctx).Attempt)
						var now string
						var n int
						if err := tx.QueryRow(ctx, "SELECT n, current_setting('transaction_isolation') FROM counter").Scan(&n, &now); err != nil {
							return "", err
						}
						assert.Equal(t, string(level), now)
						if activity.GetInfo(ctx).Attempt == 1 { // another one is faster
							_, err := b.pool.Exec(ctx, "UPDATE counter SET n = n + 10")
							assert.NoError(t, err)
						}
						_, err = tx.Exec(ctx, "UPDATE counter SET n = n + 1")
						var pg *pgconn.PgError
						if errors.As(err, &pg) {
							assert.Equal(t, "40001", pg.Code)
						}
						return "counted", err
					}, name("counts"))
				})
				got, err := b.call(t, workflow.ActivityOptions{}, "counts")
				require.NoError(t, err)
				require.Equal(t, "counted", got)
				var n int
				require.NoError(t, b.pool.QueryRow(t.Context(), "SELECT n FROM counter").Scan(&n))
				require.Equal(t, 11, n)
				require.Equal(t, map[bool]int32{false: 1, true: 2}[conflicts], runs.Load())
				require.Equal(t, []string{"completed/1"}, b.statuses(t), "nothing is recorded of a conflict")
			})
		}
	}
}
