package migrations

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3/database"
)

const (
	minServer     = 140000
	minServerName = "14"
)

// checkServer refuses a server that is too old for the steps.
func checkServer(ctx context.Context, db database.DBTxConn) error {
	var number int
	var name string
	err := db.QueryRowContext(ctx,
		"SELECT current_setting('server_version_num')::int, current_setting('server_version')").Scan(&number, &name)
	if err != nil {
		return err
	}
	return serverFault(number, name)
}

func serverFault(number int, name string) error {
	if number < minServer {
		return fmt.Errorf("the server is PostgreSQL %s: %s or newer is needed", name, minServerName)
	}
	return nil
}

// tenantsFaults says what keeps the tenants table from being referenced: by a
// foreign key that is there already or, if toMake is set, by one that this role is to make.
func (m *Migrator) tenantsFaults(ctx context.Context, db database.DBTxConn, toMake bool) ([]error, error) {
	rows, err := db.QueryContext(ctx, `
		SELECT c.relkind IN ('r', 'p'),
		       coalesce(format_type(a.atttypid, a.atttypmod), ''),
		       EXISTS (SELECT FROM pg_index i
		                WHERE i.indrelid = c.oid AND i.indisunique AND i.indimmediate AND i.indisvalid
		                  AND i.indpred IS NULL AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum),
		       coalesce(has_column_privilege(c.oid, a.attnum, 'REFERENCES'), false)
		  FROM pg_class c
		  JOIN pg_namespace n ON n.oid = c.relnamespace
		  LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'id' AND a.attnum > 0 AND NOT a.attisdropped
		 WHERE n.nspname = $1 AND c.relname = $2`, m.tenants.schema, m.tenants.name)
	if err != nil {
		return nil, err
	}
	var faults []error
	fault := func(what string) {
		name := pgx.Identifier{m.tenants.schema, m.tenants.name}.Sanitize()
		faults = append(faults, fmt.Errorf("Options.TenantsTable: %s %s", name, what))
	}
	if !rows.Next() {
		fault("does not exist: create it first, name the right table, or leave the option empty")
	} else {
		var isTable, unique, may bool
		var idType string
		if err := rows.Scan(&isTable, &idType, &unique, &may); err != nil {
			return nil, errors.Join(err, rows.Close()) //nolint:sqlclosecheck // closed on the other way too, below
		}
		switch {
		case !isTable:
			fault("is not a table: name one that a foreign key can reference")
		case idType != "bigint":
			fault("has no column id of type bigint: a tenant is identified by one")
		case !unique:
			fault("has no primary key or unique constraint on id alone: add one")
		case toMake && !may:
			fault("may not be referenced by this role: GRANT REFERENCES (id) on it")
		}
	}
	return faults, errors.Join(rows.Err(), rows.Close())
}

// explain adds the cure to errors whose SQLSTATE tells it.
func explain(err error) error {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return err
	}
	switch pgErr.Code {
	case "42501", "3F000": // insufficient_privilege, invalid_schema_name: no right to use it
		return fmt.Errorf("%w: the migrating role needs CREATE on the schema (on the database, if the schema is to be made): "+
			"grant it, or let a DBA run what Print writes", err)
	case "55P03": // lock_not_available
		return fmt.Errorf("%w: another transaction held the lock longer than Options.LockTimeout: run it again", err)
	case "42P07", "42723": // duplicate_table, duplicate_function
		return fmt.Errorf("%w: it was made without being recorded in %s: if by the steps' SQL, check it with Validate "+
			"and don't run Up there", err, versionTable)
	}
	return err
}
