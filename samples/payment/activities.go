package payment

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/effectonce/effectonce/interceptor"
)

// Payments are the activities of one outside service.
type Payments struct {
	URL string // the service's
}

// Charge charges the card once, though a worker may die between the service's
// answer and its record: the next delivery hands on the same key, and the
// service answers with the charge that it has made. The fencing number lets the
// service refuse a runner whose lease was taken over.
func (p *Payments) Charge(ctx context.Context, o Order) (Receipt, error) {
	key, keyed := interceptor.Key(ctx)
	fence, leased := interceptor.Fence(ctx)
	if !keyed || !leased {
		return Receipt{}, temporal.NewNonRetryableApplicationError("Charge needs the plugin, and a policy of mode interceptor.Leased", "Unprotected", nil)
	}
	body, err := json.Marshal(o)
	if err != nil {
		return Receipt{}, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL+"/charges", bytes.NewReader(body))
	if err != nil {
		return Receipt{}, err
	}
	request.Header.Set("Idempotency-Key", key.String())
	request.Header.Set("Fencing-Number", fmt.Sprint(fence.Attempt))
	stop := heartbeat(ctx)
	defer stop()
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return Receipt{}, fmt.Errorf("payment: charge: %w", err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode == http.StatusPaymentRequired {
		return Receipt{}, temporal.NewNonRetryableApplicationError("the card was declined", "Declined", nil)
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
		return Receipt{}, fmt.Errorf("payment: charge: the service answers %s: %s", answer.Status, text)
	}
	var r Receipt
	err = json.NewDecoder(answer.Body).Decode(&r)
	return r, err
}

// heartbeat keeps the lease while the service takes its time.
func heartbeat(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(500 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				activity.RecordHeartbeat(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}
