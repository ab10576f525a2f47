package servers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

const (
	rootModule     = "github.com/effectonce/effectonce"
	temporalFolder = "internal/temporaldev"
)

// PrepareTemporal builds what [StartTemporal] would have to build.
func PrepareTemporal(ctx context.Context) error {
	if _, err := temporalProgram(ctx); err != nil {
		return fmt.Errorf("servers: prepare %s: %w", temporalTitle, err)
	}
	return nil
}

// temporalProgram finds the Temporal CLI on PATH, if it brings a server that is
// new enough, or our own server.
func temporalProgram(ctx context.Context) (temporalServer, error) {
	if path, err := exec.LookPath("temporal"); err == nil {
		said, err := exec.CommandContext(ctx, path, "--version").Output()
		if err == nil && newEnough(string(said)) {
			return temporalServer{path: path, cli: true}, nil
		}
	}
	path, err := buildTemporal(ctx)
	return temporalServer{path: path}, err
}

var serverVersion = regexp.MustCompile(`Server (\d+)\.(\d+)`)

// newEnough tells whether what the Temporal CLI says of its version names a
// server of 1.32 or later: the first that has all the tests ask for.
func newEnough(said string) bool {
	found := serverVersion.FindStringSubmatch(said)
	if found == nil {
		return false
	}
	major, errMajor := strconv.Atoi(found[1])
	minor, errMinor := strconv.Atoi(found[2])
	return errMajor == nil && errMinor == nil && (major > 1 || major == 1 && minor >= 32)
}

// buildTemporal builds the repository's own Temporal server unless it has been
// built from the same source before, and returns the program's path in the
// user's cache folder. Any number of processes may call it at the same time.
func buildTemporal(ctx context.Context) (string, error) {
	source, err := temporalSource(ctx)
	if err != nil {
		return "", err
	}
	name, err := programName(source)
	if err != nil {
		return "", fmt.Errorf("read the Temporal server's source: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the cache folder: %w", err)
	}
	path := filepath.Join(cache, "effectonce", name)
	if executable(path) {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return "", fmt.Errorf("make the cache folder: %w", err)
	}
	unlock, err := lock(path + ".lock")
	if err != nil {
		return "", fmt.Errorf("lock the build of the Temporal server: %w", err)
	}
	defer unlock()
	if executable(path) { // somebody else has built it meanwhile
		return path, nil
	}
	return path, build(ctx, source, path)
}

// build compiles the module in source. The program appears under its name only
// when it is whole.
func build(ctx context.Context, source, path string) error {
	unfinished := path + ".unfinished"
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", unfinished, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the Temporal server: %w\n%s", err, said)
	}
	if err := os.Rename(unfinished, path); err != nil {
		return fmt.Errorf("put the Temporal server in its place: %w", err)
	}
	return nil
}

// temporalSource finds the server's module beside this file, or, in a program
// built without paths, in the folder of the root module.
func temporalSource(ctx context.Context) (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok {
		source := filepath.Join(filepath.Dir(file), "..", "temporaldev")
		if _, err := os.Stat(source); err == nil {
			return source, nil
		}
	}
	said, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", rootModule).Output()
	if err != nil {
		return "", fmt.Errorf("find the Temporal server's source: go list: %w", err)
	}
	source := filepath.Join(strings.TrimSpace(string(said)), temporalFolder)
	if _, err := os.Stat(source); err != nil {
		return "", fmt.Errorf("find the Temporal server's source: %w", err)
	}
	return source, nil
}

// programName holds a digest of all that the program is built from.
func programName(source string) (string, error) {
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil {
		return "", err
	}
	files = slices.DeleteFunc(files, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
	files = append(files, filepath.Join(source, "go.mod"), filepath.Join(source, "go.sum"))
	digest := sha256.New()
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		_, _ = fmt.Fprintf(digest, "%s %d\n%s\n", filepath.Base(path), len(text), text)
	}
	return "temporaldev-" + hex.EncodeToString(digest.Sum(nil))[:16], nil
}

// lock waits for an exclusive lock on a file that it makes.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, fs.FileMode(0o600))
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return func() { _ = file.Close() }, nil
}
