package docs_test

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// root is the repository's folder.
const root = "../.."

// files returns the texts of the repository's files with that suffix by their
// names from the root on, hidden folders left out.
func files(t *testing.T, suffix string) map[string]string {
	t.Helper()
	repository, texts := os.DirFS(root), make(map[string]string)
	require.NoError(t, fs.WalkDir(repository, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && len(name) > 1 && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(name, suffix):
			return nil
		}
		text, err := fs.ReadFile(repository, name)
		texts[name] = string(text)
		return err
	}))
	require.NotEmpty(t, texts)
	return texts
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := fs.ReadFile(os.DirFS(root), name)
	require.NoError(t, err)
	return string(text)
}

var (
	fence = regexp.MustCompile("(?ms)^```.*?^```$")
	code  = regexp.MustCompile("`[^`\n]*`")
)

// prose is a document without its code.
func prose(text string) string { return code.ReplaceAllString(fence.ReplaceAllString(text, ""), "``") }
