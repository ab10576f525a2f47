package docs_test

import (
	"path"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/ledger"
	"github.com/effectonce/effectonce/migrations"
	"github.com/effectonce/effectonce/purge"
)

// TestNamedTestsExist: the documents name tests as folder.TestName.
func TestNamedTestsExist(t *testing.T) {
	t.Parallel()
	tests := make(map[string]bool)
	function := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	for name, text := range files(t, "_test.go") {
		for _, m := range function.FindAllStringSubmatch(text, -1) {
			tests[path.Dir(name)+"."+m[1]] = true
		}
	}
	mention := regexp.MustCompile(`(?:[\w/-]+\.)?\bTest[A-Z]\w*`)
	for name, text := range files(t, ".md") {
		for _, test := range mention.FindAllString(text, -1) {
			assert.True(t, tests[test] || test == "TestMain", "%s: %s: no such test; write folder.TestName", name, test)
		}
	}
}

// TestEachKindHasItsTest: docs/kinds.md names one in each row.
func TestEachKindHasItsTest(t *testing.T) {
	t.Parallel()
	rows := regexp.MustCompile(`(?m)^\|.*\|$`).FindAllString(read(t, "docs/kinds.md"), -1)
	require.NotEmpty(t, rows)
	for _, row := range rows {
		if strings.HasPrefix(row, "| ---") || strings.HasSuffix(row, "| test |") {
			continue
		}
		assert.Regexp(t, "`interceptor\\.Test\\w+` \\|$", row)
	}
}

// TestErrorsAreListed: the README's table has each code, its type in Temporal,
// and whether it is retried.
func TestErrorsAreListed(t *testing.T) {
	t.Parallel()
	constant := regexp.MustCompile(`\tCode\w+ +Code = "(\w+)"`)
	codes := constant.FindAllStringSubmatch(read(t, "ledger/errors.go"), -1)
	require.NotEmpty(t, codes)
	types := read(t, "interceptor/errors.go")
	for _, m := range codes {
		typ := "effectonce."
		for _, word := range strings.Split(m[1], "_") {
			typ += strings.ToUpper(word[:1]) + word[1:]
		}
		assert.Contains(t, types, strconv.Quote(typ))
		retried := "no"
		if ledger.Code(m[1]).Retryable() {
			retried = "yes"
		}
		assert.Contains(t, read(t, "README.md"), "| `"+typ+"` | `"+m[1]+"` | "+retried+" |")
	}
}

// TestOptionsAreListed: one document has a table with a row for each field.
func TestOptionsAreListed(t *testing.T) {
	t.Parallel()
	documents := read(t, "README.md") + read(t, "docs/operations.md")
	for title, options := range map[string]any{
		"interceptor.Options":     interceptor.Options{},
		"interceptor.Policy":      interceptor.Policy{},
		"gate.Config":             gate.Config{},
		"ledger.Config":           ledger.Config{},
		"ledger.Limits":           ledger.Limits{},
		"ledger.Request":          ledger.Request{},
		"purge.Schedule":          purge.Schedule{},
		"purge.Params":            purge.Params{},
		"ledger.OperationOptions": ledger.OperationOptions[int, int]{},
		"ledger.EncodingOptions":  ledger.EncodingOptions[int]{},
		"migrations.Options":      migrations.Options{},
	} {
		_, table, found := strings.Cut(documents, "| `"+title+"` |")
		require.True(t, found, "no table for %s", title)
		table, _, _ = strings.Cut(table, "\n\n")
		rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\|").FindAllStringSubmatch(table, -1)
		var listed, fields []string
		for _, row := range rows {
			listed = append(listed, row[1])
		}
		for _, field := range reflect.VisibleFields(reflect.TypeOf(options)) {
			fields = append(fields, field.Name)
		}
		assert.ElementsMatch(t, fields, listed, title)
	}
}

// TestSignalsAreListed: docs/operations.md tells of each log line, and of each
// name of a span, an event, an attribute.
func TestSignalsAreListed(t *testing.T) {
	t.Parallel()
	operations := read(t, "docs/operations.md")
	line := regexp.MustCompile(`Logger\.(?:Debug|Info|Warn|Error)(?:Context)?\((?:ctx, )?"([^"]+)"`)
	signal := regexp.MustCompile(`"(effectonce\.[a-z_.]+)"`)
	metric := regexp.MustCompile(`"(idempotency_[a-z_]+_(?:total|seconds))"`)
	for name, text := range files(t, ".go") {
		switch folder, _, _ := strings.Cut(name, "/"); {
		case strings.HasSuffix(name, "_test.go"):
		case folder != "ledger" && folder != "gate" && folder != "interceptor" && folder != "purge" && folder != "migrations":
		default:
			for _, pattern := range []*regexp.Regexp{line, signal, metric} {
				for _, m := range pattern.FindAllStringSubmatch(text, -1) {
					assert.Contains(t, operations, "`"+m[1]+"`", name)
				}
			}
		}
	}
}

// TestVersionsAreThoseOfTheModule: what the README says of Go and the SDK is
// what go.mod asks for.
func TestVersionsAreThoseOfTheModule(t *testing.T) {
	t.Parallel()
	module, readme := read(t, "go.mod"), read(t, "README.md")
	for pattern, says := range map[string]string{
		`(?m)^go (\d+\.\d+)`:                 "Go %s or newer",
		`go\.temporal\.io/sdk v(\d+\.\d+)\.`: "Go SDK %s to ",
	} {
		m := regexp.MustCompile(pattern).FindStringSubmatch(module)
		require.NotNil(t, m)
		assert.Contains(t, readme, strings.ReplaceAll(says, "%s", m[1]))
	}
	newest := regexp.MustCompile(`TEMPORAL_SDK \?= v(\d+\.\d+)\.`).FindStringSubmatch(read(t, "Makefile"))
	require.NotNil(t, newest)
	assert.Contains(t, readme, " to "+newest[1])
}
