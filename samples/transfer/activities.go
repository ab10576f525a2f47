package transfer

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"go.temporal.io/sdk/temporal"

	"github.com/effectonce/effectonce/ledger"
)

// MoveMoney asks for its transaction and moves the money in it. What it writes
// and what it returns commit together, and a second delivery gets the receipt
// of the first one.
func MoveMoney(ctx context.Context, t Transfer) (Receipt, error) {
	tx, err := ledger.Tx(ctx)
	if err != nil {
		return Receipt{}, err // as it is: the plugin knows what it means
	}
	return Move(ctx, tx, t)
}

// Move is the SQL alone. It neither commits nor rolls back.
func Move(ctx context.Context, tx pgx.Tx, t Transfer) (r Receipt, err error) {
	err = tx.QueryRow(ctx, "UPDATE accounts SET balance = balance - $1 WHERE id = $2 AND balance >= $1 RETURNING balance",
		t.Amount, t.From).Scan(&r.Left)
	if errors.Is(err, pgx.ErrNoRows) {
		return Receipt{}, temporal.NewNonRetryableApplicationError(t.From+" can't pay that much", "InsufficientFunds", nil)
	}
	if err != nil {
		return Receipt{}, err
	}
	if _, err = tx.Exec(ctx, "UPDATE accounts SET balance = balance + $1 WHERE id = $2", t.Amount, t.To); err != nil {
		return Receipt{}, err
	}
	err = tx.QueryRow(ctx, "INSERT INTO transfers (transfer, payer, payee, amount) VALUES ($1, $2, $3, $4) RETURNING entry",
		t.ID, t.From, t.To, t.Amount).Scan(&r.Entry)
	return r, err
}
