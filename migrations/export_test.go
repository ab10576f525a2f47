package migrations

import (
	"context"

	"github.com/pressly/goose/v3/database"
)

// For the tests, which are outside of the package.

// LockID is the advisory lock's number.
func LockID(schema string) int64 { return lockID(schema) }

// ServerFault judges a server's version.
func ServerFault(number int, name string) error { return serverFault(number, name) }

// Catalogue returns what is in the schema, as the catalogue files write it.
func (m *Migrator) Catalogue(ctx context.Context, db database.DBTxConn, tables []string) (map[string]string, error) {
	want := make(map[string]string)
	for _, name := range tables {
		want["table "+name] = ""
	}
	return m.got(ctx, db, want)
}

// RawFiles returns the SQL of the embedded files that make things.
func RawFiles() []string {
	var texts []string
	for _, step := range load(nil) {
		text, err := embedded.ReadFile("sql/" + step.Name)
		if err != nil {
			panic(err)
		}
		texts = append(texts, string(text))
	}
	return texts
}
