package servers

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// missing says what to do about a program that is not there.
func missing(program, packages string) error {
	return fmt.Errorf("%s is not installed: run `make deps`, or install %s", program, packages)
}

// programs are PostgreSQL's that are needed here, all of one version.
type programs struct{ initdb, postgres string }

// postgresPrograms looks on PATH, then asks pg_config, then looks where the
// packages of Debian, Red Hat and Homebrew put them, newest version first.
func postgresPrograms() (programs, error) {
	for _, folder := range postgresFolders() {
		found := programs{filepath.Join(folder, "initdb"), filepath.Join(folder, "postgres")}
		if executable(found.initdb) && executable(found.postgres) {
			return found, nil
		}
	}
	return programs{}, missing("PostgreSQL's server (initdb, postgres)",
		"the package postgresql (Debian, Ubuntu), postgresql-server (Fedora) or postgresql@17 (Homebrew)")
}

func postgresFolders() []string {
	var folders []string
	if path, err := exec.LookPath("initdb"); err == nil {
		folders = append(folders, filepath.Dir(path))
	}
	if said, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		folders = append(folders, strings.TrimSpace(string(said)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
	} {
		found, _ := filepath.Glob(pattern)
		slices.SortFunc(found, func(a, b string) int { return cmp.Compare(version(b), version(a)) })
		folders = append(folders, found...)
	}
	return folders
}

var digits = regexp.MustCompile(`[0-9]+`)

// version is the first number in a path.
func version(path string) int {
	number, _ := strconv.Atoi(digits.FindString(path))
	return number
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// valkeyProgram looks for Valkey's server, and for Redis's in its place.
func valkeyProgram() (string, error) {
	for _, name := range []string{"valkey-server", "redis-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", missing("valkey-server",
		"the package valkey-server (Debian, Ubuntu) or valkey (Fedora, Homebrew)")
}

// unprivileged is who servers that refuse to run as root run as when the
// caller is root. It is nil for any other caller.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil //nolint:nilnil // no credential is what exec takes for "the caller's own"
	}
	var account *user.User
	var err error
	for _, name := range []string{"postgres", "nobody"} {
		if account, err = user.Lookup(name); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("find a user to run as in root's place: %w", err)
	}
	uid, errUID := strconv.ParseUint(account.Uid, 10, 32)
	gid, errGID := strconv.ParseUint(account.Gid, 10, 32)
	if err := errors.Join(errUID, errGID); err != nil {
		return nil, fmt.Errorf("read the numbers of user %s: %w", account.Username, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
