package ledger_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

// An operation is defined once, and run for each request with the key that the
// client sent. The handler's writes and its result commit together.
func ExampleOperation_Run() {
	type Transfer struct {
		To     string
		Amount int64
	}
	type Receipt struct{ Total int64 }

	itest.Example(func(t testing.TB) {
		ctx, store := t.Context(), exampleStore(t, "CREATE TABLE ledger (account text, amount bigint)")

		transfer, err := ledger.NewOperation(ledger.OperationOptions[Transfer, Receipt]{ID: "transfers.make"})
		if err != nil {
			t.Fatal(err)
		}
		handler := func(ctx context.Context, tx pgx.Tx, in Transfer) (r Receipt, err error) {
			if _, err := tx.Exec(ctx, "INSERT INTO ledger VALUES ($1, $2)", in.To, in.Amount); err != nil {
				return r, err
			}
			err = tx.QueryRow(ctx, "SELECT sum(amount)::bigint FROM ledger WHERE account = $1", in.To).Scan(&r.Total)
			return r, err
		}

		// Who calls is verified by the program, and may do this: both come first.
		scope, err := ledger.NewScope(ledger.Tenant(1), "user-42")
		if err != nil {
			t.Fatal(err)
		}
		key, err := ledger.ParseClientKey("0190b4f2-7c3e-7a66-9f1d-2f6b7d1c9e55")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			answer, err := transfer.Run(ctx, store, scope, key, Transfer{To: "bob", Amount: 100}, handler)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println("total:", answer.Value().Total, "replayed:", answer.Replayed())
		}
		_, err = transfer.Run(ctx, store, scope, key, Transfer{To: "bob", Amount: 999}, handler)
		fmt.Println(err)
	})
	// Output:
	// total: 100 replayed: false
	// total: 100 replayed: true
	// ledger: this key was used for another request; use a new key for a new request
}

// An HTTP layer parses the header, and shares the pattern with its OpenAPI text.
func ExampleParseClientKey() {
	handler := func(w http.ResponseWriter, r *http.Request) {
		if _, err := ledger.ParseClientKey(r.Header.Get("Idempotency-Key")); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		_, _ = fmt.Fprintln(w, "accepted")
	}
	for _, key := range []string{"0190b4f2-7c3e-7a66-9f1d-2f6b7d1c9e55", "42"} {
		r := httptest.NewRequest(http.MethodPost, "/transfers", nil)
		r.Header.Set("Idempotency-Key", key)
		w := httptest.NewRecorder()
		handler(w, r)
		fmt.Print(w.Code, " ", w.Body)
	}
	fmt.Println(ledger.ClientKeyPattern)
	// Output:
	// 200 accepted
	// 400 ledger: the key has 2 bytes: send 16 to 256 visible ASCII characters, such as a UUID
	// ^[!-~]{16,256}$
}

// A deploy changes the result's type. What the new one holds exactly is replayed;
// what it would have to guess is not, and never runs again.
func ExampleJSON() {
	type Receipt struct {
		Number int `json:"number"`
	}
	type WithOptional struct {
		Number int    `json:"number"`
		Note   string `json:"note,omitempty"`
	}
	type WithRequired struct {
		Number int    `json:"number"`
		Place  string `json:"place"`
	}
	itest.Example(func(t testing.TB) {
		store := exampleStore(t, "")
		fmt.Println(exampleRun(t, store, ledger.JSON[Receipt](), Receipt{Number: 7}))
		fmt.Println(exampleRun(t, store, ledger.JSON[WithOptional](), WithOptional{Number: 8}))
		fmt.Println(exampleRun(t, store, ledger.JSON[WithRequired](), WithRequired{Number: 9}))
	})
	// Output:
	// {7} <nil>
	// {7 } <nil>
	// {0 } ledger: the recorded result can't be read by this version of the operation: it was written by another one; the effect has happened and isn't run again
}

// Any complete form of document can be an encoding.
func ExampleNewEncoding() {
	itest.Example(func(t testing.TB) {
		store := exampleStore(t, "")
		number, err := ledger.NewEncoding(ledger.EncodingOptions[uint64]{
			Form:     "big-endian",
			Contract: "an unsigned number of eight bytes",
			Encode:   func(v uint64) ([]byte, error) { return binary.BigEndian.AppendUint64(nil, v), nil },
			Decode: func(b []byte) (uint64, error) {
				if len(b) != 8 {
					return 0, errors.New("not eight bytes")
				}
				return binary.BigEndian.Uint64(b), nil
			},
			MaxBytes: 8,
		})
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(exampleRun(t, store, number, 7))
		fmt.Println(exampleRun(t, store, number, 8))
	})
	// Output:
	// 7 <nil>
	// 7 <nil>
}

// An error beside Committed says that the failure came after the commit.
func ExampleAnswer_Committed() {
	itest.Example(func(t testing.TB) {
		store := exampleStore(t, "")
		run := func(op *ledger.Operation[string, int]) (ledger.Answer[int], error) {
			return op.Run(t.Context(), store, scope(t, ledger.Platform(), "worker"), clientKey(t, "message-1"), "in",
				func(context.Context, pgx.Tx, string) (int, error) { return 7, nil })
		}
		if _, err := run(newOperation(t, ledger.OperationOptions[string, int]{ID: "count"})); err != nil {
			t.Fatal(err)
		}
		unreadable, err := ledger.NewEncoding(ledger.EncodingOptions[int]{
			Form: "none", Contract: "nothing",
			Encode: func(int) ([]byte, error) { return nil, nil },
			Decode: func([]byte) (int, error) { return 0, errors.New("can't read anything") },
		})
		if err != nil {
			t.Fatal(err)
		}
		answer, err := run(newOperation(t, ledger.OperationOptions[string, int]{ID: "count", Encoding: unreadable}))
		switch {
		case err == nil:
			fmt.Println("publish", answer.Value())
		case answer.Committed():
			fmt.Println("it has happened; publish the result:", answer.Readable(), "report:", ledger.CodeOf(err))
		default:
			fmt.Println("nothing has happened")
		}
	})
	// Output:
	// it has happened; publish the result: false report: unavailable
}

// exampleStore is a store on a database of the example's own, with its tables.
func exampleStore(t testing.TB, tables string) *ledger.Store {
	t.Helper()
	pool := itest.Pool(t, ledgertest.Database(t))
	if _, err := pool.Exec(t.Context(), tables); err != nil {
		t.Fatal(err)
	}
	return ledgertest.Store(t, pool)
}

// exampleRun runs one operation, always with the same key.
func exampleRun[O any](t testing.TB, store *ledger.Store, e ledger.Encoding[O], result O) (O, error) {
	t.Helper()
	op := newOperation(t, ledger.OperationOptions[string, O]{ID: "example", Encoding: e})
	answer, err := op.Run(t.Context(), store, scope(t, ledger.Platform(), "worker"), clientKey(t, "message-1"), "in",
		func(context.Context, pgx.Tx, string) (O, error) { return result, nil })
	return answer.Value(), err
}
