package docs_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the documents' Go code anew")

var (
	region = regexp.MustCompile(`(?ms)^// snippet: (\S+)\n(.*?)^// end$`)
	block  = regexp.MustCompile("(?ms)^(?:<!-- snippet: (\\S+) -->\n)?```go\n(.*?)^```$")
)

// TestGoCodeIsCompiled: each block of Go code is a region of package snippets,
// and each region is shown.
func TestGoCodeIsCompiled(t *testing.T) {
	t.Parallel()
	regions := make(map[string]string)
	for name, text := range files(t, "_test.go") {
		if !strings.HasPrefix(name, "internal/docs/snippets/") {
			continue
		}
		for _, m := range region.FindAllStringSubmatch(text, -1) {
			require.NotContains(t, regions, m[1], "two snippets have one name")
			regions[m[1]] = strings.TrimSpace(m[2]) + "\n"
		}
	}
	shown := make(map[string]bool)
	for name, text := range files(t, ".md") {
		if strings.HasPrefix(name, "samples/") || strings.HasPrefix(name, "benchmarks/") {
			continue // their modules compile what they show
		}
		written := block.ReplaceAllStringFunc(text, func(b string) string {
			m := block.FindStringSubmatch(b)
			want, known := regions[m[1]]
			if !assert.True(t, known, "%s: Go code that is no snippet, %q:\n%s", name, m[1], m[2]) {
				return b
			}
			shown[m[1]] = true
			if !*update {
				assert.Equal(t, want, m[2], "%s: snippet %s: run this test with -update", name, m[1])
			}
			return "<!-- snippet: " + m[1] + " -->\n```go\n" + want + "```"
		})
		if *update && written != text {
			require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(written), 0o600))
		}
	}
	for name := range regions {
		assert.True(t, shown[name], "snippet %s is shown nowhere", name)
	}
}
