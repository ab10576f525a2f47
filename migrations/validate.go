package migrations

import (
	"context"
	"crypto/sha256"
	_ "embed" // for the catalogue
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3/database"
)

const ledgerTable = "effectonce_ledger"

var (
	//go:embed catalogue.sql
	catalogueQuery string

	// What the query answers after the platform's steps, and what the tenants' add:
	// a line for each object, "kind name: definition".
	//
	//go:embed catalogue_platform.txt
	cataloguePlatform string
	//go:embed catalogue_tenant.txt
	catalogueTenant string
)

// InvalidError says what is missing or different in a schema, all of it.
type InvalidError struct {
	Schema string
	Faults []string // each names an object, and what is wrong with it
}

// Error lists the faults and the cure.
func (e *InvalidError) Error() string {
	return fmt.Sprintf("migrations: schema %q is not what the migrations make: %s: "+
		"run migrations up; what was changed by hand after that is put back with the statements that migrations print shows",
		e.Schema, strings.Join(e.Faults, "; "))
}

// Validate compares the schema with what the steps make: tables, columns,
// constraints, indexes, functions, the ledger's identity and the tenants table.
// It changes nothing and works with the rights that Grants gives. An
// [*InvalidError] names every fault; any other error means that it couldn't look.
func (m *Migrator) Validate(ctx context.Context) error {
	faults, err := m.faults(ctx)
	if err != nil {
		return fmt.Errorf("migrations: validate: %w", err)
	}
	if len(faults) > 0 {
		return &InvalidError{Schema: m.opts.Schema, Faults: faults}
	}
	return nil
}

func (m *Migrator) faults(ctx context.Context) (faults []string, err error) {
	db := stdlib.OpenDBFromPool(m.pool)
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := checkServer(ctx, db); err != nil {
		return nil, err
	}
	want := m.want()
	got, err := m.got(ctx, db, want)
	if err != nil {
		return nil, err
	}
	faults = compare(want, got)
	if m.tenants != nil {
		tenants, err := m.tenantsFaults(ctx, db, false)
		if err != nil {
			return nil, err
		}
		for _, fault := range tenants {
			faults = append(faults, fault.Error())
		}
	}
	if _, has := got["table "+ledgerTable]; has {
		var rows int
		err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+m.qualified(ledgerTable)).Scan(&rows)
		var pgErr *pgconn.PgError
		switch {
		case errors.As(err, &pgErr) && pgErr.Code == "42501":
			faults = append(faults, "table "+ledgerTable+" may not be read by this role: run the statements of Grants")
		case err != nil:
			return nil, err
		case rows == 0:
			faults = append(faults, "table "+ledgerTable+" has lost its row, the ledger's identity: INSERT INTO "+ledgerTable+" DEFAULT VALUES")
		}
	}
	return faults, nil
}

// want returns the definition of each object that the steps make.
func (m *Migrator) want() map[string]string {
	want := make(map[string]string)
	text := cataloguePlatform
	if m.tenants != nil {
		text += catalogueTenant
	}
	for line := range strings.Lines(text) {
		if object, definition, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
			want[object] = definition
		}
	}
	for _, f := range functions(m.Migrations()) {
		sum := sha256.Sum256([]byte(f.body))
		want["function "+f.name] = "body " + hex.EncodeToString(sum[:])
	}
	return want
}

// got returns the definition of each object that is there.
func (m *Migrator) got(ctx context.Context, db database.DBTxConn, want map[string]string) (_ map[string]string, err error) {
	var tenants table
	if m.tenants != nil {
		tenants = *m.tenants
	}
	rows, err := db.QueryContext(ctx, catalogueQuery,
		m.opts.Schema, named(want, "table "), named(want, "function "), tenants.schema, tenants.name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	got := make(map[string]string)
	for rows.Next() {
		var object, definition string
		if err := rows.Scan(&object, &definition); err != nil {
			return nil, err
		}
		if other, twice := got[object]; twice {
			definition = other + ", and another of the name: " + definition
		}
		got[object] = definition
	}
	return got, rows.Err()
}

// compare returns the faults, in order of the objects' names. Of a table that is
// missing, nothing else is told.
func compare(want, got map[string]string) []string {
	var faults []string
	for object, definition := range want {
		switch is, has := got[object]; {
		case !has && !strings.HasPrefix(object, "table ") && lacksTable(object, definition, got):
		case !has:
			faults = append(faults, object+" is missing")
		case is != definition:
			faults = append(faults, fmt.Sprintf("%s is [%s], not [%s]", object, is, definition))
		}
	}
	for object, definition := range got {
		if _, known := want[object]; known {
			continue
		}
		switch kind, _, _ := strings.Cut(object, " "); {
		case kind == "constraint":
			faults = append(faults, fmt.Sprintf("%s [%s] is not of the migrations", object, definition))
		case kind == "column" && strings.HasSuffix(definition, " NOT NULL"):
			faults = append(faults, fmt.Sprintf("%s [%s] is not of the migrations, and no insert knows of it", object, definition))
		}
	}
	slices.Sort(faults)
	return faults
}

// lacksTable tells whether the object's own table is missing.
func lacksTable(object, definition string, got map[string]string) bool {
	kind, name, _ := strings.Cut(object, " ")
	switch kind {
	case "column", "constraint":
		name, _, _ = strings.Cut(name, ".")
	case "index":
		_, name, _ = strings.Cut(definition, "ON ")
		name, _, _ = strings.Cut(name, " ")
	default:
		return false
	}
	_, has := got["table "+name]
	return !has
}

// rowTables returns the tables whose rows the library writes.
func (m *Migrator) rowTables() []string {
	return slices.DeleteFunc(named(m.want(), "table "), func(name string) bool { return name == ledgerTable })
}

// named returns the sorted names of one kind of object.
func named(objects map[string]string, kind string) []string {
	names := []string{}
	for object := range objects {
		if name, is := strings.CutPrefix(object, kind); is {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

type function struct{ name, body string }

// functions returns what the steps' CREATE FUNCTION statements make. The last one
// of a name counts.
func functions(steps []Migration) []function {
	create := regexp.MustCompile(`(?s)CREATE (?:OR REPLACE )?FUNCTION (\w+)\s*\(.*?\bAS \$\$(.*)\$\$`)
	var made []function
	for _, step := range steps {
		for _, statement := range step.Up {
			m := create.FindStringSubmatch(statement)
			if m == nil {
				continue
			}
			made = slices.DeleteFunc(made, func(f function) bool { return f.name == m[1] })
			made = append(made, function{m[1], m[2]})
		}
	}
	return made
}
