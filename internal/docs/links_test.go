package docs_test

import (
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.*?) *$`)
	named   = regexp.MustCompile(`\b(?:id|name)="([^"]+)"`)
	noSlug  = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// TestLinksLeadSomewhere looks at links to files and headings of the repository.
func TestLinksLeadSomewhere(t *testing.T) {
	t.Parallel()
	documents := files(t, ".md")
	anchors := make(map[string]map[string]bool)
	for name, text := range documents {
		anchors[name] = anchorsOf(text)
	}
	for name, text := range documents {
		for _, m := range link.FindAllStringSubmatch(prose(text), -1) {
			target, err := url.Parse(m[1])
			require.NoError(t, err, "%s: %s", name, m[1])
			if target.Scheme != "" {
				continue
			}
			to := name
			if target.Path != "" {
				to = path.Join(path.Dir(name), target.Path)
				_, err := os.Stat(filepath.Join(root, to))
				assert.NoError(t, err, "%s: %s", name, m[1])
			}
			if target.Fragment != "" {
				assert.True(t, anchors[to][target.Fragment], "%s: %s: no such heading", name, m[1])
			}
		}
	}
}

// anchorsOf returns the anchors that GitHub gives to a document's headings, and
// those that it has by hand.
func anchorsOf(text string) map[string]bool {
	anchors, seen := make(map[string]bool), make(map[string]int)
	text = fence.ReplaceAllString(text, "")
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		slug := strings.ReplaceAll(noSlug.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		if n := seen[slug]; n > 0 {
			anchors[slug+"-"+strconv.Itoa(n)] = true
		} else {
			anchors[slug] = true
		}
		seen[slug]++
	}
	for _, m := range named.FindAllStringSubmatch(text, -1) {
		anchors[m[1]] = true
	}
	return anchors
}
