package interceptor

import (
	"context"
	"fmt"
	"sync"
	"time"

	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/activity"

	"github.com/effectonce/effectonce/ledger"
)

const (
	// askAbove is the size under which no namespace's limit is asked for:
	// limits are megabytes.
	askAbove = 64 << 10
	// askTimeout bounds the one question.
	askTimeout = 5 * time.Second
)

// limits knows how large a result Temporal accepts. A larger one would be
// refused after it had been committed, and then at every replay for ever.
type limits struct {
	fixed int // Options.MaxResultBytes; 0: the namespace's

	mu    sync.Mutex
	known map[string]int // by namespace
}

func newLimits(fixed int) *limits { return &limits{fixed: fixed, known: map[string]int{}} }

func (l *limits) check(ctx context.Context, info activity.Info, p *commonpb.Payloads) error {
	size := p.Size() // what the server compares with the limit
	if size <= askAbove && (l.fixed == 0 || size <= l.fixed) {
		return nil
	}
	limit := l.limit(ctx, info)
	if size <= limit {
		return nil
	}
	return ledger.NewError(ledger.CodeResultTooLarge, fmt.Sprintf("the result of %s has %d bytes, the limit is %d; nothing was committed; return less, or a reference to it", info.ActivityType.Name, size, limit), nil)
}

// limit asks the server once for each namespace. Where it doesn't answer, its
// default is assumed.
func (l *limits) limit(ctx context.Context, info activity.Info) int {
	if l.fixed > 0 {
		return l.fixed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if n, ok := l.known[info.Namespace]; ok {
		return n
	}
	n, ok := askLimit(ctx, info.Namespace)
	if ok {
		l.known[info.Namespace] = n
	}
	return n
}

func askLimit(ctx context.Context, namespace string) (n int, ok bool) {
	n = ledger.DefaultMaxResultBytes
	defer func() { ok = recover() == nil && ok }() // a test environment has no client
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	answer, err := activity.GetClient(ctx).WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: namespace})
	if err != nil {
		return n, false
	}
	if limit := answer.GetNamespaceInfo().GetLimits().GetBlobSizeLimitError(); limit > 0 {
		n = int(limit)
	}
	return n, true
}
