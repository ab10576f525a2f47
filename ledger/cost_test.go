package ledger_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

// TestRoundTrips counts on the wire what an execution costs on a warm
// connection, in each of pgx's modes.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	silent := func(context.Context) (ledger.Outcome, error) { return outcome("done"), nil }
	for name, mode := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setupWired(t, inMode(mode), func(c *pgxpool.Config) { c.MaxConns = 1 })
			// In these two modes pgx describes each statement anew, which is a
			// round trip more for each batch and each statement.
			describes := mode == pgx.QueryExecModeDescribeExec
			cost := func(what string, n, described int, f func(key string)) {
				f("warm " + what)
				require.NoError(t, w.settle(t))
				w.proxy.ResetStats()
				f("cost " + what)
				require.NoError(t, w.settle(t)) // counted below: the clean-up off the caller's path
				if describes {
					n = described
				}
				require.Equal(t, n, w.proxy.Stats().RoundTrips, what)
			}
			run := func(change func(*ledger.Request), body func(string) ledger.Body) func(string) {
				return func(key string) {
					req := records(request(key))
					change(&req)
					_, err := w.execute(t, req, body(key))
					require.NoError(t, err)
				}
			}
			late := func(*ledger.Request) {}
			fresh := func(r *ledger.Request) { r.Fresh = true }
			atOnce := func(r *ledger.Request) { r.Begin = ledger.BeginAtOnce }
			quiet := func(string) ledger.Body { return silent }

			cost("bare transaction", 3, 4, func(key string) {
				require.NoError(t, pgx.BeginFunc(t.Context(), w.link, func(tx pgx.Tx) error {
					return ledgertest.Write(t.Context(), tx, key)
				}))
			})
			cost("first execution, fresh", 3, 6, run(fresh, writes))
			cost("first execution, at once", 3, 6, run(atOnce, writes))
			cost("first execution, late", 4, 8, run(late, writes))
			cost("a body that never asks, fresh", 1, 2, run(fresh, quiet))

			run(late, writes)("replayed")
			cost("replay before the body", 1, 2, func(string) { run(late, writes)("replayed") })
			cost("replay by the claim, and its roll-back off the path", 2, 3, func(string) { run(atOnce, writes)("replayed") })
			cost("failure recorded", 3, 6, func(key string) {
				req := records(request(key))
				req.Fresh = true
				_, err := w.execute(t, req, failsAfter(key, errBody))
				require.Same(t, errBody, err)
			})
		})
	}
}

// settle waits until nothing of the store's holds the pool's one connection.
func (w *wired) settle(t *testing.T) error {
	t.Helper()
	conn, err := w.link.Acquire(t.Context())
	if err != nil {
		return err
	}
	conn.Release()
	return nil
}
