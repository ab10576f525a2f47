package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
)

// Begin says when an execution's transaction and claim begin.
type Begin int

const (
	// BeginLate begins when the body first asks for its transaction with [Tx].
	// A body that never asks holds no connection. The default.
	BeginLate Begin = iota
	// BeginAtOnce begins before the body; the look is skipped.
	BeginAtOnce
	// BeginLeased has no transaction: the claim is committed before the body,
	// with a lease, and the outcome is recorded after it, only if the claim is
	// still ours. For effects outside PostgreSQL, which can't join its
	// transaction: one runner at a time, with a fencing number to hand on.
	BeginLeased
)

// Request is one execution: what it is called and how it may run. Key and
// Fingerprint are required; the zero value of each other field is its default.
type Request struct {
	// Owner of the key. Default: the platform.
	Owner Owner
	// Key names the execution.
	Key Key
	// Fingerprint is the digest of the request: see [Fingerprint].
	Fingerprint Fingerprint
	// Operation names the kind of work, for spans and log lines: low in cardinality.
	Operation string

	// Fresh says that the caller knows of no earlier delivery, so that the look
	// before the body would only cost a round trip. A hint: the claim decides.
	Fresh bool
	// Begin says when the transaction begins. Default: [BeginLate].
	Begin Begin
	// Isolation of the transaction. Default: read committed.
	Isolation pgx.TxIsoLevel
	// Retention is how long the finished row is kept, by PostgreSQL's clock:
	// the window in which a replay is promised. Default [Limits.Retention], at
	// least 1 s.
	Retention time.Duration
	// Wait is how long a duplicate waits in place for the first one, holding no
	// connection, before [CodeInFlight] is answered. Default [Limits.Wait];
	// negative: not at all.
	Wait time.Duration
	// Lease is how long a leased claim bars others unless it is renewed, by
	// PostgreSQL's clock. For [BeginLeased] only. Default: what is left of the
	// context's deadline, or one minute without one; at least 1 ms.
	Lease time.Duration
	// Marker keeps the fact alone: the row gets no result, whoever has it from
	// elsewhere (a gate) may replay it, and whoever finds the row alone is answered
	// with [CodeAlreadyCommitted]. An outcome without data is kept as it is.
	Marker bool
	// Late says that this delivery comes later than the ledger can remember, so
	// that a key without a row may have been executed and forgotten: it is refused
	// with [CodeExpired].
	Late bool
	// RerunPermanent runs a key again whose recorded failure is permanent.
	// Default: the failure is replayed.
	RerunPermanent bool
	// Failure says how a body's error is recorded. Default: it isn't.
	Failure func(error) Failure
}

// Failure is how a body's error is recorded: with which status, FailedRetryable
// or FailedPermanent, and which outcome. The zero Failure records nothing.
type Failure struct {
	Status  Status
	Outcome Outcome
}

func (r Request) withDefaults(l Limits) Request {
	if r.Isolation == "" {
		r.Isolation = pgx.ReadCommitted
	}
	if r.Retention == 0 {
		r.Retention = l.Retention
	}
	if r.Wait == 0 {
		r.Wait = l.Wait
	}
	return r
}

func (r Request) validate() error {
	var faults []error
	if r.Key.IsZero() {
		faults = append(faults, errors.New("Request.Key is not set: derive one with SHA-256"))
	}
	if r.Fingerprint == (Fingerprint{}) {
		faults = append(faults, errors.New("Request.Fingerprint is not set: digest the request with SHA-256"))
	}
	switch r.Isolation {
	case pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
	default:
		faults = append(faults, errors.New("Request.Isolation is unknown: use pgx.ReadCommitted, pgx.RepeatableRead or pgx.Serializable"))
	}
	if r.Lease < 0 {
		faults = append(faults, fmt.Errorf("Request.Lease is %s: use at least 1ms, or 0 for what is left of the deadline", r.Lease))
	}
	if r.Retention < time.Second {
		faults = append(faults, fmt.Errorf("Request.Retention is %s: use at least 1s, or 0 for %s", r.Retention, DefaultRetention))
	}
	if faults != nil {
		return NewError(CodeInvalid, errors.Join(faults...).Error(), nil)
	}
	return nil
}

func (r Request) ref() Ref { return Ref{Owner: r.Owner, Key: r.Key} }

// LogValue implements slog.LogValuer.
func (r Request) LogValue() slog.Value {
	return slog.GroupValue(slog.String("operation", r.Operation), slog.String("owner", r.Owner.String()), slog.String("key", r.Key.String()))
}

// Body does the work of one execution. It gets its transaction with
// [Tx](ctx) and returns the outcome that is to be kept and replayed.
type Body func(ctx context.Context) (Outcome, error)

// Source says where a result came from.
type Source string

// The sources.
const (
	// Executed: the body ran, and this is its outcome.
	Executed Source = "executed"
	// LedgerReplay: the ledger had the outcome of an earlier execution.
	LedgerReplay Source = "ledger_replay"
	// GateReplay: the gate had it.
	GateReplay Source = "gate_replay"
)

// Result is an execution's recorded outcome.
type Result struct {
	Outcome Outcome
	// Status is Completed, or FailedPermanent for a replayed failure.
	Status Status
	Source Source
	// RowID and Attempt name the claim that did the work: the ledger's own
	// count of claims, not Temporal's.
	RowID   int64
	Attempt int32
	// Left is what is left of the row's retention; 0 when nothing was kept.
	Left time.Duration
	// Identity is that of the ledger that keeps the row.
	Identity Identity
}

// LogValue implements slog.LogValuer: without the outcome's data.
func (r Result) LogValue() slog.Value {
	return slog.GroupValue(slog.String("status", string(r.Status)), slog.String("source", string(r.Source)),
		slog.Int64("row_id", r.RowID), slog.Int("attempt", int(r.Attempt)), slog.Any("outcome", r.Outcome))
}

// Row is a row of the ledger as a look finds it.
type Row struct {
	ID          int64
	Attempt     int32
	Status      Status
	Fingerprint Fingerprint
	Outcome     Outcome
	// Left is what is left of the lease while the row is processing, of the
	// retention afterwards; negative when it is over.
	Left     time.Duration
	Identity Identity

	barred bool // never run again, whatever the policy
}

// LogValue implements slog.LogValuer: without the outcome's data.
func (r Row) LogValue() slog.Value {
	return slog.GroupValue(slog.Int64("row_id", r.ID), slog.Int("attempt", int(r.Attempt)),
		slog.String("status", string(r.Status)), slog.Any("outcome", r.Outcome))
}

func (r Row) result() Result {
	return Result{
		Outcome: r.Outcome, Status: r.Status, Source: LedgerReplay,
		RowID: r.ID, Attempt: r.Attempt, Left: r.Left, Identity: r.Identity,
	}
}

// Replays reports whether the row answers a request with that fingerprint
// without running anything, or is another request's ([CodeMismatch]).
func (r Row) Replays(req Request) (Result, bool, error) {
	switch {
	case r.Fingerprint != req.Fingerprint:
		return Result{}, false, mismatch()
	case r.Status == Completed && r.Outcome.Encoding == markerEncoding:
		return Result{}, false, alreadyCommitted()
	case r.Status == Completed, r.Status == FailedPermanent && (r.barred || !req.RerunPermanent):
		return r.result(), true, nil
	default:
		return Result{}, false, nil
	}
}
