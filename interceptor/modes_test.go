package interceptor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

func leasing(b *bundle, _ *client.Options) {
	b.options.Policies = map[string]interceptor.Policy{"outside": {Mode: interceptor.Leased}}
}

func TestLeasedActivity(t *testing.T) {
	t.Parallel()
	b := setup(t, losing(1), leasing)
	var runs atomic.Int32
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
			fence, ok := interceptor.Fence(ctx)
			assert.True(t, ok)
			assert.Equal(t, runs.Add(1), fence.Attempt)
			_, ok = interceptor.Key(ctx)
			assert.True(t, ok)
			_, err := ledger.Tx(ctx)
			assert.ErrorIs(t, err, ledger.ErrLeased)
			if fence.Attempt == 1 {
				return "", errors.New("the outside API is away")
			}
			return "sent", nil
		}, name("outside"))
	})
	got, err := b.call(t, workflow.ActivityOptions{}, "outside")
	require.NoError(t, err)
	require.Equal(t, "sent", got)
	require.Equal(t, int32(2), runs.Load())
	require.Equal(t, []string{"completed/2"}, b.statuses(t))
}

// TestALeaseIsRenewedByHeartbeats: an activity that heartbeats keeps its key
// for longer than one lease, and its details arrive as they were sent.
func TestALeaseIsRenewedByHeartbeats(t *testing.T) {
	t.Parallel()
	b := setup(t, leasing)
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
			if activity.HasHeartbeatDetails(ctx) {
				var n int
				err := activity.GetHeartbeatDetails(ctx, &n)
				assert.Equal(t, 42, n)
				return "resumed", err
			}
			fence, _ := interceptor.Fence(ctx)
			var before, after time.Time
			expires := func(at *time.Time) {
				assert.NoError(t, b.pool.QueryRow(ctx, "SELECT expires_at FROM platform_idempotency_keys WHERE id = $1", fence.RowID).Scan(at))
			}
			expires(&before)
			activity.RecordHeartbeat(ctx, 42)
			expires(&after)
			assert.True(t, after.After(before))
			return "", errors.New("again")
		}, name("outside"))
	})
	got, err := b.call(t, workflow.ActivityOptions{HeartbeatTimeout: 10 * time.Second}, "outside")
	require.NoError(t, err)
	require.Equal(t, "resumed", got)
}

// TestALostLeaseEndsTheBody: the zombie's context ends at its next heartbeat,
// and what it returns is not recorded.
func TestALostLeaseEndsTheBody(t *testing.T) {
	t.Parallel()
	b := setup(t, leasing)
	var runs atomic.Int32
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
			if runs.Add(1) > 1 {
				return "second", nil
			}
			_, err := b.pool.Exec(ctx, "UPDATE platform_idempotency_keys SET attempt = attempt + 1") // as a takeover does
			assert.NoError(t, err)
			activity.RecordHeartbeat(ctx)
			<-ctx.Done()
			assert.Equal(t, ledger.CodeFenced, ledger.CodeOf(context.Cause(ctx)))
			_, err = b.pool.Exec(context.WithoutCancel(ctx), "UPDATE platform_idempotency_keys SET expires_at = clock_timestamp()")
			return "first", err
		}, name("outside"))
	})
	got, err := b.call(t, workflow.ActivityOptions{HeartbeatTimeout: 10 * time.Second}, "outside")
	require.NoError(t, err)
	require.Equal(t, "second", got)
	require.Contains(t, b.outcomes(), "fenced")
}

// TestHeartbeatDetailsFromInsideTheTransactionAreWithheld: an import that
// resumes from its details ends with every row, though it failed at half.
func TestHeartbeatDetailsFromInsideTheTransactionAreWithheld(t *testing.T) {
	t.Parallel()
	const rows = 10
	b := setup(t)
	var runs atomic.Int32
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) (int, error) {
			run := runs.Add(1)
			from := 0
			if activity.HasHeartbeatDetails(ctx) {
				if err := activity.GetHeartbeatDetails(ctx, &from); err != nil {
					return 0, err
				}
			}
			if run == 1 {
				activity.RecordHeartbeat(ctx, 3) // three rows are elsewhere already
				from = 3
			}
			assert.Equal(t, 3, from, "only what was said before the transaction")
			for i := from; i < rows; i++ {
				if err := ledgertest.Effect(ctx, "row"); err != nil {
					return 0, err
				}
				activity.RecordHeartbeat(ctx, i+1)
				if run < 3 && i == rows/2 {
					return 0, errors.New("at half")
				}
			}
			return rows - from, nil
		}, name("import"))
	})
	got, err := b.call(t, workflow.ActivityOptions{HeartbeatTimeout: 10 * time.Second}, "import")
	require.NoError(t, err)
	require.EqualValues(t, rows-3, got)
	require.Equal(t, rows-3, b.effects(t, "row"))
	require.Equal(t, int32(3), runs.Load())
}
