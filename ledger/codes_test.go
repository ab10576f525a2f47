package ledger_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/ledger"
)

func TestStatusOfEachCode(t *testing.T) {
	t.Parallel()
	want := map[ledger.Code]struct {
		http int
		grpc uint32
	}{
		ledger.CodeInFlight:         {409, 10}, // Aborted
		ledger.CodeAlreadyCommitted: {409, 6},  // AlreadyExists
		ledger.CodeMismatch:         {422, 3},  // InvalidArgument
		ledger.CodeInvalid:          {400, 3},  // InvalidArgument
		ledger.CodeResultTooLarge:   {500, 8},  // ResourceExhausted
		ledger.CodeQuota:            {429, 8},  // ResourceExhausted
		ledger.CodeOverloaded:       {503, 8},  // ResourceExhausted
		ledger.CodeFenced:           {409, 10}, // Aborted
		ledger.CodeExpired:          {410, 9},  // FailedPrecondition
		ledger.CodeUnavailable:      {503, 14}, // Unavailable
	}
	source, err := os.ReadFile("errors.go")
	require.NoError(t, err)
	codes := regexp.MustCompile(`\tCode\w+ +Code = "(\w+)"`).FindAllSubmatch(source, -1)
	require.Len(t, codes, len(want))
	for _, m := range codes {
		code := ledger.Code(m[1])
		require.Contains(t, want, code)
		err := fmt.Errorf("wrapped: %w", ledger.NewError(code, "text", nil))
		assert.Equal(t, want[code].http, ledger.HTTPStatus(err), code)
		assert.Equal(t, want[code].grpc, ledger.GRPCStatus(err), code)
	}
	for err, want := range map[error][2]int{
		nil:                                    {200, 0},
		context.Canceled:                       {503, 1},
		context.DeadlineExceeded:               {504, 4},
		errors.New("the body's own"):           {500, 2},
		ledger.NewError("of another", "", nil): {500, 2},
		ledger.NewError(ledger.CodeUnavailable, "", context.DeadlineExceeded): {503, 14},
	} {
		assert.Equal(t, want[0], ledger.HTTPStatus(err), err)
		assert.EqualValues(t, want[1], ledger.GRPCStatus(err), err)
	}
}

// The payload, as text, and as numbers and letters that verbs make of it.
const secret = "s3cr3t-payl0ad"

// TestPayloadsPrintRedacted: whatever owns a payload, in whatever it stands,
// under every verb.
func TestPayloadsPrintRedacted(t *testing.T) {
	t.Parallel()
	outcome := ledger.Outcome{Encoding: "test/1", Data: []byte(secret)}
	key, err := ledger.ParseClientKey(secret + "--")
	require.NoError(t, err)
	who, err := ledger.NewScope(ledger.Platform(), secret)
	require.NoError(t, err)
	values := map[string]any{
		"outcome": outcome, "outcome's pointer": &outcome,
		"result": ledger.Result{Outcome: outcome}, "result's pointer": &ledger.Result{Outcome: outcome},
		"row": ledger.Row{Outcome: outcome},
		"key": key, "key's pointer": &key,
		"scope": who, "scope in a struct": struct{ Scope ledger.Scope }{who},
		"error": ledger.NewError(ledger.CodeInvalid, "text", errors.New(secret)),
	}
	inside := map[string]any{
		"outcomes":         []ledger.Outcome{outcome},
		"outcomes by name": map[string]ledger.Outcome{"a": outcome},
		"failure":          ledger.Failure{Outcome: outcome},
	}
	b := setup(t)
	op := newOperation(t, ledger.OperationOptions[string, []byte]{})
	answer, err := op.Run(t.Context(), b.store, who, key, secret, func(context.Context, pgx.Tx, string) ([]byte, error) {
		return []byte(secret), nil
	})
	require.NoError(t, err)
	values["answer"], values["answer's pointer"] = answer, &answer
	inside["answers"] = []ledger.Answer[[]byte]{answer}

	for name, v := range values {
		var text, document bytes.Buffer
		slog.New(slog.NewTextHandler(&text, nil)).Info("line", "v", v)
		slog.New(slog.NewJSONHandler(&document, nil)).Info("line", "v", v)
		unread(t, text.String(), "%s logged as text", name)
		unread(t, document.String(), "%s logged as JSON", name)
		inside[name] = v
	}
	for name, v := range inside {
		// Not %w and %p, which are for errors and pointers only: fmt prints their misuse without asking the value.
		for _, verb := range "vsqxXdbcoOUeEfFgGtT" {
			for _, flags := range []string{"", "+", "#", "#+", " ", "-40.30", "0", "[1]"} {
				unread(t, fmt.Sprintf("%"+flags+string(verb), v), "%s under %%%s%c", name, flags, verb)
			}
		}
		unread(t, fmt.Sprint(v), "%s printed", name)
	}
	for name, v := range map[string]any{"answer": answer, "key": key, "scope": who} { // these hold nothing to print
		for _, misuse := range []string{"%w", "%p"} {
			unread(t, fmt.Sprintf(misuse, v), "%s under %s", name, misuse)
		}
	}
}

// unread fails if the secret is in the text in any form that a verb or a log's
// handler gives it.
func unread(t *testing.T, text, message string, args ...any) {
	t.Helper()
	encoded, _ := json.Marshal([]byte(secret))
	for _, form := range []string{
		secret, fmt.Sprintf("%x", secret), fmt.Sprintf("%X", secret), fmt.Sprintf("% x", secret),
		strings.Trim(fmt.Sprint([]byte(secret)), "[]"), fmt.Sprintf("%o", []byte(secret[:3])), strings.Trim(string(encoded), `"`),
	} {
		assert.NotContains(t, text, strings.Trim(form, "[]"), append([]any{message}, args...)...)
	}
}

func TestErrorsRetryAfterIsReachable(t *testing.T) {
	t.Parallel()
	var e *ledger.Error
	require.ErrorAs(t, fmt.Errorf("wrapped: %w", ledger.InFlight(3*time.Second)), &e)
	require.Equal(t, 3*time.Second, e.RetryAfter)
	require.Equal(t, 409, ledger.HTTPStatus(e))
}

// An HTTP layer and a gRPC one answer by the code, in one place.
func ExampleHTTPStatus() {
	err := error(ledger.InFlight(1500 * time.Millisecond))
	fmt.Println(ledger.HTTPStatus(err), ledger.GRPCStatus(err), ledger.CodeOf(err))
	var e *ledger.Error
	if errors.As(err, &e) && e.RetryAfter > 0 {
		fmt.Printf("Retry-After: %.0f\n", e.RetryAfter.Seconds())
	}
	// Output:
	// 409 10 in_flight
	// Retry-After: 2
}
