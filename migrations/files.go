package migrations

import (
	"archive/zip"
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

const (
	// tenantsToken is what stands in the files for the tenants table: valid SQL,
	// so that the files run as they are where the table is called tenants.
	tenantsToken = "/*tenants*/ tenants" //nolint:gosec // no secret

	// lastPlatform is the highest number of the platform's steps; above it are the tenants'.
	lastPlatform = 100
)

// The files of sql only ever make things, so that any tool can run them; those
// that take them back are in sql/down, by the same names.
//
//go:embed sql
var embedded embed.FS

// Migration is one numbered step, rendered for the schema and the tenants table
// of its [Migrator].
type Migration struct {
	Version int64  // 1, 2, …; the tenants' steps begin at 101
	Name    string // of the file, such as 0001_platform_tables.sql

	// Transaction tells that the step's statements belong in one transaction.
	// Where it is false, each must run on its own, outside a transaction, all of them
	// in the same session: an index is built concurrently.
	Transaction bool

	// Up and Down are the statements, each with its semicolon and the comments
	// above it. Their names are unqualified: search_path must be the schema.
	Up, Down []string

	source string
}

func (m Migration) tenant() bool { return m.Version > lastPlatform }

// Migrations returns the steps that apply with these options, in order.
func (m *Migrator) Migrations() []Migration {
	return m.known(m.tenants != nil)
}

// FS returns the same steps as files with goose's annotations, for programs that
// apply them by themselves. Those must set search_path to the schema.
func (m *Migrator) FS() fs.FS {
	return files(m.Migrations())
}

// known returns the steps, those for tenants only if they are asked for.
func (m *Migrator) known(tenant bool) []Migration {
	all := load(m.tenants)
	return slices.DeleteFunc(all, func(step Migration) bool { return step.tenant() && !tenant })
}

// load reads the embedded files. They are part of the program: a fault in one is
// a bug that no caller can cure, and the tests find it.
func load(tenants *table) []Migration {
	names, err := fs.Glob(embedded, "sql/*.sql")
	if err != nil {
		panic(err)
	}
	steps := make([]Migration, 0, len(names))
	for _, name := range names {
		up, err := embedded.ReadFile(name)
		if err != nil {
			panic(err)
		}
		down, err := embedded.ReadFile("sql/down/" + path.Base(name))
		if err != nil {
			panic(err)
		}
		source := string(up) + "\n" + string(down)
		if tenants != nil {
			source = strings.ReplaceAll(source, tenantsToken, tenants.given.Sanitize())
		}
		steps = append(steps, parse(path.Base(name), source))
	}
	return steps
}

// parse splits a file the way goose does: a statement ends with the line that
// ends with a semicolon, or is fenced by StatementBegin and StatementEnd.
func parse(name, source string) Migration {
	number, _, _ := strings.Cut(name, "_")
	version, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		panic(fmt.Errorf("migrations: %s: no number: %w", name, err))
	}
	step := Migration{Version: version, Name: name, Transaction: true, source: source}
	var (
		into   *[]string
		fenced bool
		buf    strings.Builder
	)
	emit := func() {
		*into = append(*into, strings.TrimSpace(buf.String()))
		buf.Reset()
	}
	for line := range strings.Lines(source) {
		annotation, is := strings.CutPrefix(strings.TrimSpace(line), "-- +goose ")
		if !is {
			buf.WriteString(line)
			line = strings.TrimSpace(line)
			if !fenced && strings.HasSuffix(line, ";") && !strings.HasPrefix(line, "--") {
				emit()
			}
			continue
		}
		switch annotation {
		case "Up":
			into = &step.Up
			buf.Reset()
		case "Down":
			into = &step.Down
			buf.Reset()
		case "NO TRANSACTION":
			step.Transaction = false
		case "StatementBegin":
			fenced = true
		case "StatementEnd":
			fenced = false
			emit()
		}
	}
	return step
}

// files returns the steps' sources as a file system in memory: an archive read in
// place, for want of a plainer one in the standard library.
func files(steps []Migration) fs.FS {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, step := range steps {
		// Writing to memory can't fail.
		f, _ := w.CreateHeader(&zip.FileHeader{Name: step.Name, Method: zip.Store})
		_, _ = f.Write([]byte(step.source))
	}
	_ = w.Close()
	r, err := zip.NewReader(bytes.NewReader(buf.Bytes()), int64(buf.Len()))
	if err != nil {
		panic(err)
	}
	return r
}
