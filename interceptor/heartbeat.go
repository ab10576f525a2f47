package interceptor

import (
	"context"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/interceptor"

	"github.com/effectonce/effectonce/internal/clock"
	"github.com/effectonce/effectonce/ledger"
)

// activityOutbound sees the heartbeats that an activity sends.
type activityOutbound struct {
	interceptor.ActivityOutboundInterceptorBase
}

// RecordHeartbeat keeps the activity alive as ever. A lease is renewed with it.
// While the transaction is open it carries only the details from before it
// began: later ones describe rows that a crash rolls back, and an activity that
// resumed from them would skip those rows.
func (o *activityOutbound) RecordHeartbeat(ctx context.Context, details ...any) {
	b, ok := ctx.Value(beatsKey{}).(*beats)
	if !ok {
		o.Next.RecordHeartbeat(ctx, details...)
		return
	}
	o.Next.RecordHeartbeat(ctx, b.pass(ctx, details)...)
	b.renew(ctx)
}

type beatsKey struct{}

// beats is what the heartbeats of one execution have in common.
type beats struct {
	lease time.Duration

	mu      sync.Mutex
	before  []any // the newest details from before the transaction
	known   bool  // before is set
	renewed time.Time
}

// maxDetails is how many values of the last attempt's details are carried on.
const maxDetails = 64

// pass returns the details to send.
func (b *beats) pass(ctx context.Context, details []any) []any {
	b.mu.Lock()
	defer b.mu.Unlock()
	if x, ok := ledger.FromContext(ctx); !ok || !x.Open() {
		b.before, b.known = details, true
		return details
	}
	if !b.known { // nothing sent yet: the last attempt's stand, and would be wiped
		b.before, b.known = lastDetails(ctx), true
	}
	return b.before
}

// lastDetails are the details of the attempt before, as they came.
func lastDetails(ctx context.Context) []any {
	if !activity.HasHeartbeatDetails(ctx) {
		return nil
	}
	values := make([]converter.RawValue, maxDetails)
	pointers := make([]any, maxDetails)
	for i := range values {
		pointers[i] = &values[i]
	}
	if err := activity.GetHeartbeatDetails(ctx, pointers...); err != nil {
		return nil
	}
	var details []any
	for _, v := range values {
		if v.Payload() == nil {
			break
		}
		details = append(details, v)
	}
	return details
}

// renew renews a lease once a third of it has passed. It runs in the heartbeat's
// own goroutine, bounded by what is left of the lease. A lease that was lost ends
// the body's context; a database that can't be reached lets it run on.
func (b *beats) renew(ctx context.Context) {
	x, ok := ledger.FromContext(ctx)
	if !ok {
		return
	}
	if _, leased := x.Fence(); !leased {
		return
	}
	b.mu.Lock()
	now := clock.Now()
	due := b.renewed.IsZero() || now.Sub(b.renewed) > b.lease/3
	if due {
		b.renewed = now
	}
	b.mu.Unlock()
	if !due {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, b.lease)
	defer cancel()
	if err := x.Renew(ctx); err != nil {
		activity.GetLogger(ctx).Warn("lease not renewed", "error", err)
	}
}
