// Package scripts holds the repository's scripts, which are Bash, and their
// tests. It may import the standard library and the test libraries.
package scripts_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	bookworm = "ID=debian\nVERSION_ID=\"12\"\nVERSION_CODENAME=bookworm\n"
	trixie   = "ID=debian\nVERSION_ID=\"13\"\nVERSION_CODENAME=trixie\n"
	noble    = "ID=ubuntu\nVERSION_ID=\"24.04\"\nVERSION_CODENAME=noble\n"

	fromArchive   = "env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends postgresql valkey-server\n"
	postgresAlone = "env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends postgresql\n"
	fromBackports = "env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends -t bookworm-backports valkey-server\n"
	faketime      = "env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends libfaketime\n"
)

// TestDepsPlan looks at what would be done on systems that this is not.
func TestDepsPlan(t *testing.T) {
	t.Parallel()
	entry := func(line string) string {
		return "/sources.list.d/bookworm-backports.list: " + line + " bookworm-backports main\n"
	}
	tests := map[string]struct {
		system, release string
		sources         map[string]string
		wants           []string
		never           []string
		fails           string
	}{
		"Debian 13": {
			system: "Linux", release: trixie,
			wants: []string{fromArchive, "apt-get update -q\n", "exit 101\n", faketime}, never: []string{"backports"},
		},
		"Ubuntu 24.04": {
			system: "Linux", release: noble, wants: []string{fromArchive}, never: []string{"backports"},
		},
		"Debian 12, a deb822 source": {
			system: "Linux", release: bookworm,
			sources: map[string]string{"sources.list.d/debian.sources": "# the security archive first\n" +
				"Types: deb\nURIs: http://security.example/debian-security\nSuites: bookworm-security\nComponents: main\n\n" +
				"types: deb deb-src\nURIs: http://mirror.example/debian\nSuites: bookworm bookworm-updates\n# why not\n" +
				"Components: contrib\n main\nSigned-By: /usr/share/keyrings/some.gpg\n"},
			wants: []string{
				entry("deb [signed-by=/usr/share/keyrings/some.gpg] http://mirror.example/debian"), postgresAlone, fromBackports,
			},
		},
		"Debian 12, a one-line source": {
			system: "Linux", release: bookworm,
			sources: map[string]string{"sources.list": "# deb http://old.example/debian bookworm main\n" +
				"deb-src http://source.example/debian bookworm main\n" +
				"deb http://security.example/debian-security bookworm-security main\n" +
				"deb [ arch=amd64 signed-by=/k.gpg ] http://mirror.example/debian bookworm contrib main non-free\n"},
			wants: []string{entry("deb [ arch=amd64 signed-by=/k.gpg ] http://mirror.example/debian"), fromBackports},
		},
		"Debian 12, without options": {
			system: "Linux", release: bookworm,
			sources: map[string]string{"sources.list": "deb http://mirror.example/debian bookworm main\n"},
			wants:   []string{entry("deb http://mirror.example/debian"), fromBackports},
		},
		"Debian 12 that has its backports": {
			system: "Linux", release: bookworm,
			sources: map[string]string{"sources.list.d/all.sources": "Types: deb\nURIs: http://mirror.example/debian\n" +
				"Suites: bookworm bookworm-backports\nComponents: main\n"},
			wants: []string{fromBackports}, never: []string{"sources.list.d/bookworm-backports"},
		},
		"Debian 12 whose only source is off": {
			system: "Linux", release: bookworm,
			sources: map[string]string{"sources.list.d/debian.sources": "Enabled: no\nTypes: deb\n" +
				"URIs: http://mirror.example/debian\nSuites: bookworm\nComponents: main\n"},
			fails: "no source of suite bookworm, component main",
		},
		"macOS": {system: "Darwin", wants: []string{"brew install postgresql@17 valkey\n"}, never: []string{"apt-get"}},
		"Debian 11": {
			system: "Linux", release: "ID=debian\nVERSION_ID=\"11\"\nVERSION_CODENAME=bullseye\n",
			fails: "please install",
		},
		"another Linux":  {system: "Linux", release: "ID=slackware\nVERSION_ID=15\n", fails: "Valkey, 7.2 or newer"},
		"another system": {system: "Plan9", fails: "PostgreSQL's server, 14 or newer"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(folder, "sources.list.d"), 0o750))
			for path, text := range test.sources {
				require.NoError(t, os.WriteFile(filepath.Join(folder, path), []byte(text), 0o600))
			}
			release := filepath.Join(folder, "os-release")
			require.NoError(t, os.WriteFile(release, []byte(test.release), 0o600))

			cmd := exec.CommandContext(t.Context(), "./deps", "--plan", "--all")
			cmd.Env = append(os.Environ(), "DEPS_SYSTEM="+test.system, "DEPS_OS_RELEASE="+release, "DEPS_APT="+folder)
			var out, said bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &said
			err := cmd.Run()
			if test.fails != "" {
				require.Error(t, err)
				assert.Contains(t, said.String(), test.fails)
				return
			}
			require.NoError(t, err, said.String())
			for _, want := range test.wants {
				assert.Contains(t, out.String(), want)
			}
			for _, never := range test.never {
				assert.NotContains(t, out.String(), never)
			}
		})
	}
}

// TestDepsAreThere runs where `make deps` has been run.
func TestDepsAreThere(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "./deps", "--plan").CombinedOutput()
	require.NoError(t, err)
	assert.Empty(t, string(out))
}

func TestDepsRefusesUnknownArguments(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "./deps", "--help").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(out), "--help")
}
