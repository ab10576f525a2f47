package ledger_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

// A message for a broker can't join PostgreSQL's transaction; a row that says
// "send it" can. Whoever forwards the rows may send one twice, so that the row's
// id goes along as the message's own key.
func ExampleOperation_Run_outbox() {
	type Order struct{ Item string }
	type Placed struct{ Number int64 }

	itest.Example(func(t testing.TB) {
		pool := itest.Pool(t, ledgertest.Database(t))
		ctx, store := t.Context(), ledgertest.Store(t, pool)
		if _, err := pool.Exec(ctx, `CREATE TABLE orders (number bigint GENERATED ALWAYS AS IDENTITY, item text);
			CREATE TABLE outbox (id bigint GENERATED ALWAYS AS IDENTITY, topic text, body text)`); err != nil {
			t.Fatal(err)
		}

		place := func(ctx context.Context, tx pgx.Tx, in Order) (out Placed, err error) {
			err = tx.QueryRow(ctx, "INSERT INTO orders (item) VALUES ($1) RETURNING number", in.Item).Scan(&out.Number)
			if err != nil {
				return out, err
			}
			_, err = tx.Exec(ctx, "INSERT INTO outbox (topic, body) VALUES ('orders.placed', $1)", fmt.Sprint(out.Number))
			return out, err
		}
		op := newOperation(t, ledger.OperationOptions[Order, Placed]{ID: "orders.place"})
		for range 3 { // the queue delivers at least once
			answer, err := op.Run(ctx, store, scope(t, ledger.Tenant(1), "queue orders"), clientKey(t, "message 4711"), Order{Item: "tea"}, place)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Println("order", answer.Value().Number)
		}

		rows, err := pool.Query(ctx, "SELECT topic || ' ' || body FROM outbox")
		if err != nil {
			t.Fatal(err)
		}
		messages, err := pgx.CollectRows(rows, pgx.RowTo[string])
		fmt.Println(messages, err)
	})
	// Output:
	// order 1
	// order 1
	// order 1
	// [orders.placed 1] <nil>
}
