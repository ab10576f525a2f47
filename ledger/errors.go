package ledger

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Code is a public category of error. It is safe to show to anyone.
type Code string

// The codes. [Code.Retryable] says which of them are worth another try.
const (
	// CodeInFlight: another delivery holds the key. Come back after RetryAfter.
	CodeInFlight Code = "in_flight"
	// CodeAlreadyCommitted: only a marker of the first execution is left.
	CodeAlreadyCommitted Code = "already_committed"
	// CodeMismatch: the key was used for another request.
	CodeMismatch Code = "mismatch"
	// CodeInvalid: a caller's bug, such as an unknown tenant or a body that
	// ended the ledger's transaction.
	CodeInvalid Code = "invalid"
	// CodeResultTooLarge: the result is over the limit; found before COMMIT and
	// rolled back.
	CodeResultTooLarge Code = "result_too_large"
	// CodeQuota: the owner keeps too many unexpired rows.
	CodeQuota Code = "quota"
	// CodeOverloaded: too many executions at once in this process.
	CodeOverloaded Code = "overloaded"
	// CodeFenced: the claim was taken over; nothing was written.
	CodeFenced Code = "fenced"
	// CodeExpired: the attempt comes later than the ledger can remember.
	CodeExpired Code = "expired"
	// CodeUnavailable: the ledger can't be reached, or a commit stays in doubt.
	CodeUnavailable Code = "unavailable"
)

// Retryable reports whether the same call may succeed later.
func (c Code) Retryable() bool {
	switch c {
	case CodeInFlight, CodeQuota, CodeOverloaded, CodeFenced, CodeUnavailable:
		return true
	default:
		return false
	}
}

// Error is what the ledger answers when it can't answer with an outcome. Its
// text is public: it holds no input, no result and no raw business key. The
// private cause is reachable by [errors.Unwrap].
type Error struct {
	// Code is the error's category.
	Code Code
	// RetryAfter is when another try is worthwhile, counted from now; 0 when
	// the ledger can't tell.
	RetryAfter time.Duration
	// InDoubt says that the effect may have been committed. The same key finds
	// out; nothing may be undone or released on the strength of this error.
	InDoubt bool

	text  string
	cause error
}

// Error implements error.
func (e *Error) Error() string { return "ledger: " + e.text }

// Format implements fmt.Formatter: it prints the public text under every verb,
// never the private cause.
func (e *Error) Format(f fmt.State, verb rune) {
	if verb == 'q' {
		_, _ = fmt.Fprintf(f, "%q", e.Error())
		return
	}
	_, _ = io.WriteString(f, e.Error())
}

// Unwrap returns the private cause, or nil.
func (e *Error) Unwrap() error { return e.cause }

// NewError returns an Error for packages that stand on the ledger and answer
// with its codes. text must be public; cause may be nil.
func NewError(code Code, text string, cause error) *Error {
	return &Error{Code: code, text: text, cause: cause}
}

// InDoubt reports whether err says that the effect may have been committed.
func InDoubt(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.InDoubt
}

// CodeOf returns the code of the first [*Error] in err's chain, or "".
func CodeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// ErrReplay is what [Tx] answers to a body whose execution has already
// finished. The body should return at once; whatever it returns, its caller
// gets the recorded outcome.
var ErrReplay = errors.New("ledger: this execution has already finished; return, and the caller gets the recorded outcome")

// ErrNoExecution is what [Tx] answers outside of an execution.
var ErrNoExecution = errors.New("ledger: no execution in this context: call Tx inside a body that the ledger runs, with the context it was given")

func unavailable(verb string, cause error) *Error {
	return NewError(CodeUnavailable, verb+": the database can't be reached or refused to answer; try again", cause)
}

// InFlight returns the error that asks a duplicate to come back after a while.
func InFlight(after time.Duration) *Error {
	e := NewError(CodeInFlight, fmt.Sprintf("another delivery holds this key; try again in %s", after.Round(time.Millisecond)), nil)
	e.RetryAfter = after
	return e
}

func alreadyCommitted() *Error {
	return NewError(CodeAlreadyCommitted, "an earlier execution has committed, and only the fact of it was kept: read the state again, nothing is to be repeated", nil)
}

func expired() *Error {
	return NewError(CodeExpired, "this delivery comes later than the ledger can remember, and no row is left: an earlier one may have committed; look at the effect by hand", nil)
}

func mismatch() *Error {
	return NewError(CodeMismatch, "this key was used for another request; use a new key for a new request", nil)
}
