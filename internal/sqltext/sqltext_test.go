package sqltext_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/effectonce/effectonce/internal/sqltext"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestEndsTransaction(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"":                                 "",
		"select 1":                         "",
		"commit":                           "COMMIT",
		"  Commit work":                    "COMMIT",
		"END":                              "END",
		"abort":                            "ABORT",
		"rollback":                         "ROLLBACK",
		"rollback and chain":               "ROLLBACK",
		"rollback work":                    "ROLLBACK",
		"rollback to sp":                   "",
		"rollback to savepoint sp":         "",
		"rollback transaction to sp":       "",
		"ROLLBACK WORK TO SAVEPOINT a":     "",
		"savepoint a":                      "",
		"release savepoint a":              "",
		"prepare transaction 'x'":          "PREPARE TRANSACTION",
		"prepare x as select 1":            "",
		"commit prepared 'x'":              "COMMIT",
		"select 1; commit":                 "COMMIT",
		"select 1;; ;end;":                 "END",
		"-- hello\ncommit":                 "COMMIT",
		"-- commit":                        "",
		"/* a /* nested */ */ commit":      "COMMIT",
		"/* commit; */ select 1":           "",
		"select 'a;commit'":                "",
		"select 'it''s; commit'":           "",
		`select e'\'; commit; --'`:         "",
		`select e'\''; commit`:             "COMMIT",
		`select 'a\'; commit; --'`:         "COMMIT",
		`select ";commit"`:                 "",
		"select $$;commit;$$":              "",
		"select $a$;commit;$$ $a$; abort":  "ABORT",
		"select $1; commit":                "COMMIT",
		"select case when true then 1 end": "",
		"insert into commit values (1)":    "",
		"do $$ begin commit; end $$":       "",
		"begin":                            "",
		"create function f() returns int begin atomic; select case when true then 1 end; end; select 1": "",
		"create function f() returns int begin atomic select 1; end; commit":                            "COMMIT",
		"create table a(b int); end":      "END",
		"select 'unterminated; commit":    "",
		"select $x$ unterminated; commit": "",
		"/* unterminated commit":          "",
		"(commit)":                        "",
	} {
		require.Equal(t, want, sqltext.EndsTransaction(sql), "%q", sql)
	}
}

func FuzzEndsTransaction(f *testing.F) {
	f.Add("select $a$;/*$a$ e'\\")
	f.Fuzz(func(t *testing.T, sql string) {
		before := sqltext.EndsTransaction(sql)
		if before != "" {
			return
		}
		// What is safe alone stays safe with a safe statement before it, and a
		// commit in front of it is always seen.
		require.Empty(t, sqltext.EndsTransaction("select 1;"+sql))
		require.Equal(t, "COMMIT", sqltext.EndsTransaction("commit;"+sql))
	})
}
