package interceptor

import (
	"context"
	"fmt"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"

	"github.com/effectonce/effectonce/internal/clock"
	"github.com/effectonce/effectonce/ledger"
)

const (
	// askAbove is the size under which no namespace's limit is asked for:
	// limits are megabytes.
	askAbove = 64 << 10
	// askTimeout bounds the one question; askAgain is how long it isn't repeated
	// after it was not answered.
	askTimeout = time.Second
	askAgain   = 10 * time.Second
)

// limits knows how large a result Temporal accepts. A larger one would be
// refused after it had been committed, and then at every replay for ever.
type limits struct {
	fixed int // Options.MaxResultBytes; 0: the namespace's

	mu    sync.Mutex // never held while the server is asked
	asked map[string]*question
}

// question is what a namespace's server is asked, once for all who wait.
type question struct {
	done  chan struct{} // closed when the rest is set
	limit int           // 0: not answered
	at    time.Time
}

func newLimits(fixed int) *limits { return &limits{fixed: fixed, asked: map[string]*question{}} }

// check refuses a result that is too large. Where the namespace's limit can't be
// learned, the server's default is assumed, and what passes that is unavailable
// rather than refused for good.
func (l *limits) check(ctx context.Context, info activity.Info, p *commonpb.Payloads) error {
	size := p.Size() // what the server compares with the limit
	limit := l.fixed
	switch {
	case limit > 0 || size <= askAbove:
	case info.WorkflowExecution.RunID == testRunID: // a test environment has no server
		limit = ledger.DefaultMaxResultBytes
	default:
		limit = l.of(ctx, info.Namespace)
	}
	switch {
	case limit > 0 && size > limit:
		return ledger.NewError(ledger.CodeResultTooLarge, fmt.Sprintf("the result of %s has %d bytes, the limit is %d; nothing was committed; return less, or a reference to it", info.ActivityType.Name, size, limit), nil)
	case limit == 0 && size > ledger.DefaultMaxResultBytes:
		return ledger.NewError(ledger.CodeUnavailable, fmt.Sprintf("the result of %s has %d bytes, and Temporal doesn't say whether the namespace takes that much; nothing was committed", info.ActivityType.Name, size), nil)
	default:
		return nil
	}
}

// of returns a namespace's limit in bytes, or 0 where the server doesn't say.
func (l *limits) of(ctx context.Context, namespace string) int {
	l.mu.Lock()
	q := l.asked[namespace]
	mine := q == nil || q.stale()
	if mine {
		q = &question{done: make(chan struct{})}
		l.asked[namespace] = q
	}
	l.mu.Unlock()
	if mine {
		q.limit, q.at = askLimit(ctx, namespace), clock.Now()
		close(q.done)
	}
	select {
	case <-q.done:
		return q.limit
	case <-ctx.Done():
		return 0
	}
}

// stale reports whether it was not answered, a while ago.
func (q *question) stale() bool {
	select {
	case <-q.done:
		return q.limit == 0 && clock.Since(q.at) > askAgain
	default:
		return false
	}
}

// askLimit asks though the activity is being cancelled: others wait for the
// answer too.
func askLimit(ctx context.Context, namespace string) int {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	answer, err := activity.GetClient(ctx).WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	if err != nil {
		return 0
	}
	if limit := answer.GetNamespaceInfo().GetLimits().GetBlobSizeLimitError(); limit > 0 {
		return int(limit)
	}
	return ledger.DefaultMaxResultBytes
}
