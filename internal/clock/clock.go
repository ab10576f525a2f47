// Package clock is the one place that reads the worker's clock. The library
// measures waits and deadlines with it; leases and retention are PostgreSQL's
// and Valkey's own. It imports the standard library alone.
package clock

import (
	"context"
	"math/rand/v2"
	"time"
)

// Now returns the time, with its monotonic reading.
func Now() time.Time { return time.Now() }

// Since returns how long ago t was.
func Since(t time.Time) time.Duration { return time.Since(t) }

// Until returns how far off t is; negative when it has passed.
func Until(t time.Time) time.Duration { return time.Until(t) }

// Left returns what is left of the context's deadline, and false without one.
func Left(ctx context.Context) (time.Duration, bool) {
	t, ok := ctx.Deadline()
	if !ok {
		return 0, false
	}
	return time.Until(t), true
}

// Wait returns after d, or earlier with the context's error.
func Wait(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Backoff returns a jittered pause before try number n (from 0): between half
// of and the whole of first doubled n times, at most last.
func Backoff(n int, first, last time.Duration) time.Duration {
	d := first
	for range n {
		if d >= last {
			break
		}
		d *= 2
	}
	d = min(d, last)
	return d/2 + rand.N(d/2+1) //nolint:gosec // a jitter needs no secrecy
}
