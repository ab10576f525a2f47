package transfer

import (
	"context"
	_ "embed" // schema.sql
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/effectonce/effectonce/migrations"
)

//go:embed schema.sql
var schema string

// Setup makes the ledger's tables and the sample's own. Doing it again changes
// nothing.
func Setup(ctx context.Context, pool *pgxpool.Pool) error {
	m, err := migrations.New(pool, migrations.Options{})
	if err != nil {
		return err
	}
	if _, err := m.Up(ctx); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, schema); err != nil {
		return fmt.Errorf("transfer: make the tables: %w", err)
	}
	return nil
}
