package migrations

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

const (
	defaultSchema      = "public"
	defaultLockTimeout = 5 * time.Second
	defaultLockWait    = 5 * time.Minute

	// maxIdentifier is PostgreSQL's limit: a longer name is cut without an error.
	maxIdentifier = 63
)

// Options says where the ledger lives. The zero value means: the platform's
// table only, in schema "public".
type Options struct {
	// Schema holds everything that the migrations make. It is the exact name,
	// without quotes, and is made if it is missing. Default: "public".
	Schema string

	// TenantsTable names the table whose bigint column id identifies a tenant, as
	// it is written in SQL: tenants, app.tenants, "App"."Tenants". Without a
	// schema it is looked for in Schema. Default: none, and then the table for
	// tenants' keys isn't made. It can be named later: Up then adds what is missing.
	TenantsTable string

	// LockTimeout is PostgreSQL's lock_timeout for the steps: how long one may wait
	// for other transactions, whose followers wait behind it. Building an index
	// concurrently bars nobody and has a longer one of its own. Whole milliseconds.
	// Default: 5 s.
	LockTimeout time.Duration

	// LockWait is how long to wait, in whole seconds rounded up, for another
	// migrator of the same schema to finish. Default: 5 min.
	LockWait time.Duration

	// Logger hears of each step. Default: nobody does.
	Logger *slog.Logger
}

// table is a schema-qualified name and the way it was given.
type table struct {
	schema, name string
	given        pgx.Identifier
}

// withDefaults returns the options with every zero field set, and all their faults.
func (o Options) withDefaults() (Options, *table, error) {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("migrations: "+format, args...))
	}
	if o.Schema == "" {
		o.Schema = defaultSchema
	}
	if why := badName(o.Schema); why != "" {
		fault("Options.Schema: a schema's name %s: give the exact name, without quotes", why)
	} else if strings.HasPrefix(o.Schema, "pg_") || o.Schema == "information_schema" || o.Schema == "$user" {
		fault("Options.Schema: %q means something to PostgreSQL itself: name a schema of your own", o.Schema)
	}
	var tenants *table
	if o.TenantsTable != "" {
		given, why := parseName(o.TenantsTable)
		switch {
		case why != "":
			fault("Options.TenantsTable: a table's name %s: write it as in SQL, like app.tenants", why)
		case len(given) == 1:
			tenants = &table{o.Schema, given[0], given}
		default:
			tenants = &table{given[0], given[1], given}
		}
	}
	if o.LockTimeout == 0 {
		o.LockTimeout = defaultLockTimeout
	}
	if o.LockTimeout < time.Millisecond {
		fault("Options.LockTimeout: a duration of at least 1 ms is needed, not %s: leave it 0 for %s", o.LockTimeout, defaultLockTimeout)
	}
	if o.LockWait == 0 {
		o.LockWait = defaultLockWait
	}
	if o.LockWait < 0 {
		fault("Options.LockWait: a duration can't be negative: leave it 0 for %s", defaultLockWait)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, tenants, errors.Join(faults...)
}

// badName says what keeps name from being an identifier, or nothing.
func badName(name string) string {
	switch {
	case name == "":
		return "can't be empty"
	case len(name) > maxIdentifier:
		return fmt.Sprintf("has at most %d bytes", maxIdentifier)
	case !utf8.ValidString(name) || strings.ContainsRune(name, 0):
		return "is valid UTF-8 without NUL"
	}
	return ""
}

// parseName reads a table's name with or without a schema the way SQL does:
// what isn't quoted is folded to lower case.
func parseName(text string) (pgx.Identifier, string) {
	part := regexp.MustCompile(`^(?:"((?:[^"]|"")*)"|([A-Za-z_\x{80}-\x{10FFFF}][A-Za-z0-9_$\x{80}-\x{10FFFF}]*))(\.|$)`)
	var name pgx.Identifier
	for rest, more := text, true; more; {
		m := part.FindStringSubmatch(rest)
		if m == nil {
			return nil, "is one or two identifiers with a dot between"
		}
		id := strings.ReplaceAll(m[1], `""`, `"`)
		if m[2] != "" {
			id = foldASCII(m[2])
		}
		if why := badName(id); why != "" {
			return nil, why
		}
		name = append(name, id)
		rest, more = rest[len(m[0]):], m[3] == "."
	}
	if len(name) > 2 {
		return nil, "has at most a schema before it"
	}
	return name, ""
}

func foldASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}
