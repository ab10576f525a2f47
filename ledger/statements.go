package ledger

import (
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// statements are the texts that one of the two tables is used with. Each is
// one constant text, so that a connection prepares it once. The functions are
// the migrations' own; they do in one round trip what would take several.
type statements struct {
	table  string // the names' beginning
	claim  string
	finish string
	fail   string
	bar    string
	record string
	renew  string
	look   string
	doubt  string
	prune  string
	behind string
	kept   string
	quota  string
}

func newStatements(schema string, tenant bool, quota int) statements {
	q := pgx.Identifier{schema}.Sanitize() + "."
	table, owner := "platform_idempotency", []string(nil)
	match := "k.idempotency_key = $1::bytea"
	if tenant {
		table, owner = "idempotency", []string{"bigint"}
		match = "k.tenant_id = $1::bigint AND k.idempotency_key = $2::bytea"
	}
	call := func(function string, types ...string) string {
		var b strings.Builder
		b.WriteString("SELECT * FROM " + q + table + "_" + function + "(")
		for i, t := range types {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString("$" + strconv.Itoa(i+1) + "::" + t)
		}
		b.WriteString(")")
		return b.String()
	}
	with := func(types ...string) []string { return append(append([]string(nil), owner...), types...) }
	next := func(n int) string { return "$" + strconv.Itoa(len(owner)+n) }
	return statements{
		table:  table,
		claim:  call("claim", with("bytea", "bytea", "bigint", "bigint", "boolean", "text", "text::jsonb", "bytea")...),
		finish: call("finish", "bigint", "integer", "text", "text::jsonb", "bytea"),
		fail:   call("fail", with("bytea", "bytea", "bigint", "integer", "text", "text::jsonb", "bytea", "bigint")...),
		bar:    call("bar", with("bytea", "bytea", "bigint", "integer", "text::jsonb", "bigint")...),
		record: call("record", "bigint", "integer", "text", "text::jsonb", "bytea", "bigint"),
		renew: `UPDATE ` + q + table + `_keys
   SET expires_at = clock_timestamp() + $3::bigint * interval '1 millisecond', updated_at = clock_timestamp()
 WHERE id = $1::bigint AND attempt = $2::integer AND status = 'processing'`,
		look: `SELECT k.id, k.attempt, k.status, k.request_fingerprint, k.outcome::text, p.payload,
       ceil(extract(epoch FROM k.expires_at - clock_timestamp()) * 1000)::bigint
  FROM ` + q + table + `_keys k LEFT JOIN ` + q + table + `_payloads p ON p.id = k.id
 WHERE ` + match,
		doubt: `SELECT w.writable, w.same, k.id, k.attempt, k.status,
       CASE WHEN w.writable AND w.same THEN pg_xact_status(` + next(2) + `::text::xid8) END
  FROM (SELECT NOT i.recovering AS writable, i.identity = ` + next(3) + `::text AS same
          FROM (` + identityQuery(q) + `) i) w
  LEFT JOIN ` + q + table + `_keys k ON ` + match,
		prune:  pruneStatement(q + table),
		behind: behindStatement(q + table),
		kept:   keptStatement(tenant),
		quota:  quotaStatement(q+table+"_keys", match, tenant, quota),
	}
}

// identityQuery reads what tells this ledger from any other: the migration's
// random id, the system identifier that initdb made, the database, and the
// timeline, which a promotion changes at once.
func identityQuery(q string) string {
	return `SELECT l.ledger_id::text || '/' || (SELECT system_identifier FROM pg_control_system())::text || '/'
              || (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())::text || '/'
              || CASE WHEN pg_is_in_recovery() THEN '-' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END AS identity,
            pg_is_in_recovery() AS recovering
       FROM ` + q + `effectonce_ledger l`
}

// ownerArgs begins an argument list with the tenant's id where there is one.
func ownerArgs(o Owner, args ...any) []any {
	if id, ok := o.TenantID(); ok {
		return append([]any{id}, args...)
	}
	return args
}
