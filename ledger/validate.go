package ledger

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Validate connects and makes sure of what every execution needs: a writable
// primary that can be reached, the migrations' tables and functions, and the
// rights to them. It changes nothing. All faults are reported together.
func (s *Store) Validate(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.active.Done()
	conn, err := s.config.Pool.Acquire(ctx)
	if err != nil {
		return NewError(CodeUnavailable, "validate: Config.Pool can't connect: check the address, the user, the password and the database's name", err)
	}
	defer conn.Release() // a second release does nothing
	names := []string{"effectonce_ledger"}
	for _, table := range s.tables() {
		names = append(names, table+"_keys", table+"_payloads")
	}
	const tablesQuery = `SELECT n, to_regclass(format('%I.%I', $1::text, n)) IS NOT NULL,
       coalesce(CASE WHEN to_regnamespace(format('%I', $1::text)) IS NOT NULL AND to_regclass(format('%I.%I', $1::text, n)) IS NOT NULL
            THEN has_table_privilege(to_regclass(format('%I.%I', $1::text, n)), 'SELECT') AND (n = 'effectonce_ledger' OR
                 has_table_privilege(to_regclass(format('%I.%I', $1::text, n)), 'INSERT') AND
                 has_table_privilege(to_regclass(format('%I.%I', $1::text, n)), 'UPDATE') AND
                 has_table_privilege(to_regclass(format('%I.%I', $1::text, n)), 'DELETE')) END, false)
  FROM unnest($2::text[]) AS n`
	rows, err := conn.Query(ctx, tablesQuery, s.config.Schema, names)
	if err != nil {
		return unavailable("validate", err)
	}
	var (
		text            string
		name            string
		exists, granted bool
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &exists, &granted}, func() error {
		switch {
		case !exists:
			text += fmt.Sprintf("; the table %s is missing in the schema %q: run the migrations, or correct Config.Schema", name, s.config.Schema)
		case !granted:
			text += fmt.Sprintf("; the user lacks rights to the table %s: grant SELECT, INSERT, UPDATE and DELETE", name)
		}
		return nil
	})
	if err != nil {
		return unavailable("validate", err)
	}
	if text == "" {
		text, err = s.validateServer(ctx, conn.Conn())
		if err != nil {
			return err
		}
	}
	if text != "" {
		return NewError(CodeInvalid, "validate"+text, nil)
	}
	conn.Release()
	_, err = s.Identity(ctx)
	return err
}

// validateServer makes sure that the functions are there and that this is the
// primary.
func (s *Store) validateServer(ctx context.Context, conn *pgx.Conn) (text string, err error) {
	var readOnly bool
	err = conn.QueryRow(ctx, "SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::boolean").Scan(&readOnly)
	if err != nil {
		return "", unavailable("validate", err)
	}
	if readOnly {
		return "; the server is a standby or read-only: Config.Pool must reach the primary (target_session_attrs=read-write)", nil
	}
	rows, err := conn.Query(ctx, `SELECT t || '_' || f, p.oid IS NOT NULL, coalesce(has_function_privilege(p.oid, 'EXECUTE'), false)
  FROM unnest($2::text[]) AS t CROSS JOIN unnest(ARRAY['claim', 'finish', 'fail', 'bar', 'record']) AS f
  LEFT JOIN pg_proc p ON p.proname = t || '_' || f AND p.pronamespace = to_regnamespace(format('%I', $1::text))`, s.config.Schema, s.tables())
	if err != nil {
		return "", unavailable("validate", err)
	}
	var (
		name            string
		exists, granted bool
	)
	_, err = pgx.ForEachRow(rows, []any{&name, &exists, &granted}, func() error {
		switch {
		case !exists:
			text += fmt.Sprintf("; the function %s is missing in the schema %q: run the migrations of this version", name, s.config.Schema)
		case !granted:
			text += fmt.Sprintf("; the user lacks the right to the function %s: grant EXECUTE", name)
		}
		return nil
	})
	if err != nil {
		return "", unavailable("validate", err)
	}
	return text, nil
}

func (s *Store) tables() []string {
	tables := []string{s.platform.table}
	if s.config.Tenants {
		tables = append(tables, s.tenant.table)
	}
	return tables
}
