// Command setup makes the ledger's tables and the sample's own in the database
// that DATABASE_URL names.
package main

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/effectonce/effectonce/samples/transfer"
)

func main() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatalln("Unable to read DATABASE_URL:", err)
	}
	defer pool.Close()
	if err := transfer.Setup(ctx, pool); err != nil {
		log.Panicln("Unable to set up:", err)
	}
}
