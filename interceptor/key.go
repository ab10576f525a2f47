package interceptor

import (
	"context"
	"encoding/binary"
	"errors"

	"go.temporal.io/sdk/activity"

	"github.com/effectonce/effectonce/internal/digest"
	"github.com/effectonce/effectonce/ledger"
)

// Key returns the key of the execution that ctx belongs to: the same at each
// delivery, and so fit to hand to an outside API as its idempotency key. It is
// false outside of an execution, and in mode [Off].
func Key(ctx context.Context) (ledger.Key, bool) {
	x, ok := ledger.FromContext(ctx)
	if !ok {
		return ledger.Key{}, false
	}
	return x.Key(), true
}

// Fence returns the fencing number of an execution in mode [Leased]: it grows
// each time the key is taken over, so that an outside store which keeps the
// greatest it has seen can refuse a late writer. It is false in other modes.
func Fence(ctx context.Context) (ledger.Fence, bool) {
	x, ok := ledger.FromContext(ctx)
	if !ok {
		return ledger.Fence{}, false
	}
	return x.Fence()
}

// The kinds of execution that a derived key tells apart.
const (
	kindWorkflow   = "workflow"
	kindStandalone = "standalone"
)

// DeriveKey names one execution of an activity: all its attempts have the same
// key, and no other execution has it. It is made of the namespace, the kind, the
// workflow's run ID (a standalone activity's own run ID), the activity ID, and
// the time at which it was scheduled, which is the same at every attempt and
// tells two uses of one activity ID in a run apart. There is no version in it:
// a deploy between two attempts must not change it.
//
// A new run ID (retry of the workflow, reset, cron, continue-as-new) makes new
// keys.
func DeriveKey(info activity.Info) (ledger.Key, error) {
	kind, run := kindWorkflow, info.WorkflowExecution.RunID
	if info.ActivityRunID != "" {
		kind, run = kindStandalone, info.ActivityRunID
	}
	switch {
	case info.IsLocalActivity:
		return ledger.Key{}, errors.New("a local activity has no identity of its own that survives a retry")
	case run == "":
		return ledger.Key{}, errors.New("the execution has no run ID")
	case info.ActivityID == "":
		return ledger.Key{}, errors.New("the execution has no activity ID")
	case info.ScheduledTime.IsZero():
		return ledger.Key{}, errors.New("the server says no scheduled time")
	}
	var at [8]byte
	binary.BigEndian.PutUint64(at[:], uint64(info.ScheduledTime.UnixNano())) // any bits name a time
	return digest.Of("effectonce/derived/1", kind, info.Namespace, run, info.ActivityID, string(at[:])), nil
}

// derivedFingerprint is the fingerprint of every delivery of a derived key. It
// says nothing of the input: re-encoding that isn't stable across deploys, and
// an execution's input never changes anyway.
func derivedFingerprint(k ledger.Key) ledger.Fingerprint {
	return ledger.Fingerprint(digest.Of("effectonce/derived-fingerprint/1", string(k[:])))
}
