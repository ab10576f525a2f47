package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgconn"
)

// leave starts workers again, and says how to look at what there is.
func (d *demo) leave(ctx context.Context) error {
	if err := d.fleet.start(ctx, workers); err != nil {
		return err
	}
	d.title("All is left running. Ctrl-C ends it.")
	if ui := d.temporal.UIAddress(); ui != "" {
		d.print("  http://" + ui)
	}
	config, err := pgconn.ParseConfig(d.dsn)
	if err != nil {
		return err
	}
	if d.postgres.Owned() {
		if d.passfile, err = writePassfile(config); err != nil {
			return fmt.Errorf("write the password for psql: %w", err)
		}
		d.print("  export PGPASSFILE=" + d.passfile)
	}
	d.print(fmt.Sprintf("  psql -h %s -p %d -U %s %s", config.Host, config.Port, config.User, config.Database))
	d.print("  valkey-cli -u redis://" + d.valkey.Addr())
	return nil
}

// writePassfile writes the private server's password where psql reads it, and
// nobody else can.
func writePassfile(config *pgconn.Config) (string, error) {
	file, err := os.CreateTemp("", "demo-*.pgpass")
	if err != nil {
		return "", err
	}
	_, err = fmt.Fprintf(file, "%s:%d:*:%s:%s\n", config.Host, config.Port, config.User, config.Password)
	return file.Name(), errors.Join(err, file.Close())
}
