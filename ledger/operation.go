package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/effectonce/effectonce/internal/canonical"
	"github.com/effectonce/effectonce/internal/digest"
)

// Executor is what typed operations run on: a [*Store], or what
// gate.Runner.Executor returns, which has Valkey in front of one. Both take the
// same path and make the same rows as the Temporal plugin.
type Executor interface {
	// Execute runs the body once, or returns the outcome of the execution that
	// did: see [Store.Execute].
	Execute(ctx context.Context, req Request, body Body) (Result, error)
	// Config returns the ledger's limits.
	Config() Config
}

var _ Executor = (*Store)(nil)

// OperationOptions define a kind of work. Only ID is required; the zero value
// of each other field is its default.
type OperationOptions[I, O any] struct {
	// ID names the operation among all that use the same tables, for good: 1 to
	// 128 bytes of visible ASCII, such as "orders.place".
	ID string
	// Version is a part of every key: another one is another address, where
	// nothing has happened yet. For changes after which an old result must not
	// answer a new request. Default 0.
	Version uint32
	// Encoding writes results down. Default: [JSON].
	Encoding Encoding[O]
	// Fingerprint renders the input so that equal requests are equal bytes, which
	// are digested and never stored: the same key with another input is refused
	// with [CodeMismatch]. Default: canonical JSON (RFC 8785).
	Fingerprint func(I) ([]byte, error)
	// Isolation of the transaction. Default: read committed.
	Isolation pgx.TxIsoLevel
	// Retention is how long the finished row is kept: the window in which a
	// replay is promised. Default [Limits.Retention], at least 1 s.
	Retention time.Duration
	// Wait is how long a duplicate waits in place for the first one, holding no
	// connection, before [CodeInFlight] is answered. Default [Limits.Wait];
	// negative: not at all.
	Wait time.Duration
}

// Operation is a kind of work with an input and a result, defined once. It is
// safe for use by many goroutines.
type Operation[I, O any] struct{ options OperationOptions[I, O] }

// NewOperation returns an operation. All faults are reported together.
func NewOperation[I, O any](o OperationOptions[I, O]) (*Operation[I, O], error) {
	if o.Encoding.encode == nil && o.Encoding.fault == nil {
		o.Encoding = JSON[O]()
	}
	if o.Fingerprint == nil {
		o.Fingerprint = canonicalInput[I]
	}
	var faults []error
	if n := len(o.ID); n == 0 || n > 128 {
		faults = append(faults, fmt.Errorf("OperationOptions.ID has %d bytes: use 1 to 128, such as \"orders.place\"", n))
	}
	for _, c := range []byte(o.ID) {
		if c < '!' || c > '~' {
			faults = append(faults, fmt.Errorf("OperationOptions.ID has the byte 0x%02x: use visible ASCII", c))
			break
		}
	}
	if o.Encoding.fault != nil {
		faults = append(faults, fmt.Errorf("OperationOptions.Encoding: %w", o.Encoding.fault))
	}
	switch o.Isolation {
	case "", pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
	default:
		faults = append(faults, errors.New("OperationOptions.Isolation is unknown: use pgx.ReadCommitted, pgx.RepeatableRead or pgx.Serializable"))
	}
	if o.Retention != 0 && o.Retention < time.Second {
		faults = append(faults, fmt.Errorf("OperationOptions.Retention is %s: use at least 1s, or 0 for %s", o.Retention, DefaultRetention))
	}
	if faults != nil {
		return nil, fmt.Errorf("ledger: new operation: %w", errors.Join(faults...))
	}
	return &Operation[I, O]{options: o}, nil
}

// canonicalInput is the default of OperationOptions.Fingerprint.
func canonicalInput[I any](input I) ([]byte, error) {
	raw, err := json.Marshal(input)
	if err != nil {
		return nil, err
	}
	return canonical.JSON(raw)
}

// Handler does an operation's work. It writes through tx, returns a result to
// commit it with, or an error to roll back, which the caller gets as it is. It
// can't end tx, and can't use it any more once it has returned.
type Handler[I, O any] func(ctx context.Context, tx pgx.Tx, input I) (O, error)

// Run runs the handler once for the scope and the key, or answers with the
// result of the run that did. Authorization comes before every Run: a replay
// doesn't ask again whether the caller may.
//
// A caller whose context is cancelled stops waiting at once. A handler that has
// begun goes on to its end, within the caller's deadline or [Limits.Timeout], and
// commits if it succeeds: the same key finds out. The store's closing cancels it.
//
// The handler's own error comes out as it is; any other is an [*Error] with a
// code, or the context's. An error beside [Answer.Committed] says that something
// failed after the commit: report it, and never do the work again.
func (op *Operation[I, O]) Run(ctx context.Context, on Executor, scope Scope, key ClientKey, input I, handler Handler[I, O]) (Answer[O], error) {
	if err := op.check(ctx, on, scope, key, handler != nil); err != nil {
		return Answer[O]{}, err
	}
	req, err := op.request(on.Config().Limits.withDefaults(), scope, key, input)
	if err != nil {
		return Answer[O]{}, err
	}
	var value O
	ran := false
	result, attended, err := attend(ctx, on, req, func(ctx context.Context) (Outcome, error) {
		tx, err := Tx(ctx)
		if err != nil {
			return Outcome{}, err
		}
		v, err := handler(ctx, tx, input)
		if err != nil {
			return Outcome{}, err
		}
		outcome, v, err := op.options.Encoding.write(v)
		value, ran = v, err == nil
		return outcome, err
	})
	if !attended {
		return Answer[O]{}, err // the handler goes on, and value is its own
	}
	return op.answer(result, err, value, ran)
}

func (op *Operation[I, O]) check(ctx context.Context, on Executor, scope Scope, key ClientKey, handled bool) error {
	var faults []error
	if op == nil || op.options.ID == "" {
		faults = append(faults, errors.New("the operation was never defined: use NewOperation"))
	}
	if on == nil {
		faults = append(faults, errors.New("the executor is nil: pass a *Store, or gate.Runner.Executor()"))
	}
	if scope.IsZero() {
		faults = append(faults, errors.New("the scope was never made: use NewScope with whom you have verified"))
	}
	if key.IsZero() {
		faults = append(faults, errors.New("the key was never parsed: use ParseClientKey"))
	}
	if !handled {
		faults = append(faults, errors.New("the handler is nil: pass a function"))
	}
	if _, inside := FromContext(ctx); inside {
		faults = append(faults, errors.New("the context is another execution's: a handler has its own transaction, in which it can do this work directly; else run it before or after that execution, with a context from outside"))
	}
	if faults != nil {
		return NewError(CodeInvalid, "run: "+errors.Join(faults...).Error(), nil)
	}
	return nil
}

func (op *Operation[I, O]) request(l Limits, scope Scope, key ClientKey, input I) (Request, error) {
	o := op.options
	if key.bytes > l.MaxKeyBytes {
		return Request{}, NewError(CodeInvalid, fmt.Sprintf("run %s: the key has %d bytes, the limit is %d (Limits.MaxKeyBytes)", o.ID, key.bytes, l.MaxKeyBytes), nil)
	}
	raw, err := o.Fingerprint(input)
	if err != nil {
		return Request{}, NewError(CodeInvalid, fmt.Sprintf("run %s: the input of type %T has no canonical form: set OperationOptions.Fingerprint", o.ID, input), err)
	}
	if len(raw) > l.MaxInputBytes {
		return Request{}, NewError(CodeInvalid, fmt.Sprintf("run %s: the input has %d bytes, the limit is %d (Limits.MaxInputBytes)", o.ID, len(raw), l.MaxInputBytes), nil)
	}
	if o.Retention == 0 {
		o.Retention = l.Retention
	}
	if o.Wait == 0 {
		o.Wait = l.Wait
	}
	return Request{
		Owner:       scope.owner,
		Key:         Key(digest.Of("effectonce/operation/1", o.ID, strconv.FormatUint(uint64(o.Version), 10), string(scope.caller[:]), string(key.digest[:]))),
		Fingerprint: Fingerprint(digest.Of("effectonce/operation-fingerprint/1", string(raw))),
		Operation:   o.ID,
		Begin:       BeginAtOnce,
		Isolation:   o.Isolation,
		Retention:   o.Retention,
		Wait:        o.Wait,
	}, nil
}

func (op *Operation[I, O]) answer(r Result, err error, value O, ran bool) (Answer[O], error) {
	a := Answer[O]{committed: r.Status == Completed, replayed: r.Source != "" && r.Source != Executed}
	switch {
	case err != nil && !a.committed:
		return Answer[O]{}, err
	case !a.committed && r.Outcome.Encoding == BarredEncoding:
		return a, NewError(CodeInvalid, "an earlier handler ended the ledger's transaction itself: what it wrote may stand, and this key never runs again; look at the effect by hand", nil)
	case !a.committed:
		return a, unreadable(fmt.Errorf("status %q, recorded as %s: no typed operation records that", r.Status, r.Outcome.Encoding))
	case ran && !a.replayed:
		a.value = &value
		return a, err
	}
	v, readErr := op.options.Encoding.read(r.Outcome)
	switch {
	case readErr == nil:
		a.value = &v
		return a, err
	case err == nil:
		return a, readErr
	default:
		return a, errors.Join(err, readErr)
	}
}

// Answer is what [Operation.Run] returns. It prints redacted under every format
// verb.
type Answer[O any] struct {
	committed, replayed bool

	value *O // a pointer, which is printed as an address at most
}

// Value returns the committed result, the same for the run that made it and for
// each replay. It is the zero value where nothing was committed, and where the
// recorded result can't be read: see [Answer.Readable].
func (a Answer[O]) Value() (v O) {
	if a.value != nil {
		v = *a.value
	}
	return v
}

// Committed reports whether the effect is in the database, beside a nil error
// always. Beside another error it says that the failure came after the commit:
// publish the value if it is readable, report the failure, and don't repeat the
// work.
func (a Answer[O]) Committed() bool { return a.committed }

// Replayed reports whether an earlier run's result was found, so that the
// handler didn't run.
func (a Answer[O]) Replayed() bool { return a.replayed }

// Readable reports whether [Answer.Value] is the committed result, beside a nil
// error always.
func (a Answer[O]) Readable() bool { return a.value != nil }

// Format implements fmt.Formatter: it prints the value's type, never the value.
func (a Answer[O]) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "ledger.Answer[%s]{Committed: %t, Replayed: %t}", reflect.TypeFor[O](), a.committed, a.replayed)
}

// LogValue implements slog.LogValuer.
func (a Answer[O]) LogValue() slog.Value {
	return slog.GroupValue(slog.Bool("committed", a.committed), slog.Bool("replayed", a.replayed))
}
