// Command setup makes the ledger's tables in the database that DATABASE_URL
// names.
package main

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/effectonce/effectonce/migrations"
)

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatalln("Unable to read DATABASE_URL:", err)
	}
	defer pool.Close()
	m, err := migrations.New(pool, migrations.Options{})
	if err != nil {
		log.Panicln("Unable to set up:", err)
	}
	if _, err := m.Up(ctx); err != nil {
		log.Panicln("Unable to set up:", err)
	}
}
