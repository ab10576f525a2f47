package ledger

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
)

// ran is what came of an execution that goes on without its caller.
type ran struct {
	result   Result
	err      error
	panicked any
	ended    bool // it returned, rather than panicked or ended its goroutine
}

// attend executes so that a caller who has gone stops waiting: a handler that
// has begun goes on to its end, with the caller's deadline as its own, and the
// same key finds out; one that has not begun never does. attended is false where
// the handler may still run.
func attend(ctx context.Context, on Executor, req Request, body Body) (result Result, attended bool, err error) {
	own, cancel := ownContext(ctx)
	var begun atomic.Bool // by the handler, or by the caller who has gone before it
	done := make(chan ran, 1)
	go func() {
		var r ran
		defer func() {
			cancel()
			if !r.ended {
				r.panicked = recover()
			}
			done <- r
		}()
		r.result, r.err = on.Execute(own, req, func(ctx context.Context) (Outcome, error) {
			if begun.Swap(true) {
				return Outcome{}, context.Canceled
			}
			return body(ctx)
		})
		r.ended = true
	}()
	select {
	case r := <-done:
		result, err = r.unwind()
		return result, true, err
	case <-ctx.Done():
	}
	if !begun.Swap(true) {
		cancel() // it waits for a connection, or for another delivery
		r := <-done
		if r.ended && r.err == nil {
			return r.result, true, nil // a replay
		}
		return Result{}, true, fmt.Errorf("ledger: run: the caller has gone before the body: %w", ctx.Err())
	}
	select {
	case r := <-done: // both at once
		result, err = r.unwind()
		return result, true, err
	default:
	}
	go func() {
		if r := <-done; !r.ended { // its text may hold what isn't ours to show
			on.Config().Logger.ErrorContext(own, "a handler panicked after its caller had gone", "request", req)
		}
	}()
	return Result{}, false, fmt.Errorf("ledger: run: the caller has gone, the handler goes on to its end, and the same key finds out: %w", ctx.Err())
}

// ownContext is the caller's without its cancellation: its values and its
// deadline.
func ownContext(ctx context.Context) (context.Context, context.CancelFunc) {
	own := context.WithoutCancel(ctx)
	if at, ok := ctx.Deadline(); ok {
		return context.WithDeadline(own, at)
	}
	return context.WithCancel(own)
}

// unwind ends the caller as the handler has ended.
func (r ran) unwind() (Result, error) {
	switch {
	case r.ended:
		return r.result, r.err
	case r.panicked != nil:
		panic(r.panicked)
	default:
		runtime.Goexit()
		return Result{}, nil
	}
}
