package migrations

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Print writes the whole SQL of Up on an empty schema, for a DBA to read and to
// run with a tool that stops at the first error (psql -v ON_ERROR_STOP=1). The
// steps are recorded as Up does it, so that a later Up begins behind them.
func (m *Migrator) Print(w io.Writer) error {
	var b strings.Builder
	schema := pgx.Identifier{m.opts.Schema}.Sanitize()
	fmt.Fprintf(&b, "-- effectonce: the ledger in schema %q. PostgreSQL %s or newer.\n", m.opts.Schema, minServerName)
	b.WriteString("-- Run it in one session, not in one transaction, and stop at the first error.\n\n")
	if m.opts.Schema != defaultSchema {
		fmt.Fprintf(&b, "CREATE SCHEMA IF NOT EXISTS %s;\n", schema)
	}
	fmt.Fprintf(&b, "SET search_path = %s;\nSET lock_timeout = %d; -- milliseconds\n\n", schema, m.opts.LockTimeout.Milliseconds())
	fmt.Fprintf(&b, "-- Which steps were applied.\nBEGIN;\n%s\nCOMMIT;\n", makeVersionTable)
	for _, step := range m.Migrations() {
		record := fmt.Sprintf("INSERT INTO %s (version_id, is_applied) VALUES (%d, true);", versionTable, step.Version)
		up := strings.Join(step.Up, "\n\n")
		if step.Transaction {
			fmt.Fprintf(&b, "\n-- %s: in one transaction.\nBEGIN;\n\n%s\n\n%s\nCOMMIT;\n", step.Name, up, record)
		} else {
			fmt.Fprintf(&b, "\n-- %s: outside a transaction, each statement on its own.\n\n%s\n\n%s\n", step.Name, up, record)
		}
	}
	b.WriteString("\nRESET lock_timeout;\nRESET search_path;\n")
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("migrations: print: %w", err)
	}
	return nil
}

// Grants returns the statements that give role all that the library needs once
// the steps are applied: to use the schema, the rows and the functions. The role
// is the exact name, without quotes. It needs no right to the tenants table: a
// foreign key is checked with its owner's rights.
func (m *Migrator) Grants(role string) (string, error) {
	if why := badName(role); why != "" {
		return "", fmt.Errorf("migrations: grants: %w", errors.New("a role's name "+why))
	}
	to := pgx.Identifier{role}.Sanitize()
	var b strings.Builder
	fmt.Fprintf(&b, "GRANT USAGE ON SCHEMA %s TO %s;\n", pgx.Identifier{m.opts.Schema}.Sanitize(), to)
	for _, name := range []string{ledgerTable, versionTable} {
		fmt.Fprintf(&b, "GRANT SELECT ON %s TO %s;\n", m.qualified(name), to)
	}
	for _, name := range m.rowTables() {
		fmt.Fprintf(&b, "GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %s;\n", m.qualified(name), to)
	}
	for _, f := range functions(m.Migrations()) {
		fmt.Fprintf(&b, "GRANT EXECUTE ON FUNCTION %s TO %s;\n", m.qualified(f.name), to)
	}
	return b.String(), nil
}
