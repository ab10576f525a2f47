package ledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pipeline sends a batch in one round trip and reads its answers. The context
// bounds it, by the connection's deadline: pgx's own watch costs a goroutine for
// each batch, and leaves it behind when the connection dies in the middle
// (pgconn.Pipeline.Close returns before it unwatches; seen in pgx 5.7.6).
func pipeline(ctx context.Context, conn *pgxpool.Conn, batch *pgx.Batch, read func(pgx.BatchResults) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	raw := conn.Conn().PgConn().Conn()
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = raw.SetDeadline(time.Unix(1, 0)) // any time that has passed
	})
	results := conn.SendBatch(context.WithoutCancel(ctx), batch)
	err := read(results)
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	if !stop() {
		<-ended
		_ = raw.SetDeadline(time.Time{}) // the answers may all have come before
	}
	return err
}
