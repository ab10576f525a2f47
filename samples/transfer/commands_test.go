package transfer_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
)

// TestCommands does what the README says, on real servers, and compares with
// what it says will be seen.
func TestCommands(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	said, err := exec.CommandContext(t.Context(), "go", "build", "-o", folder, "./setup", "./worker", "./starter").CombinedOutput()
	require.NoError(t, err, string(said))
	dsn := itest.Database(t)
	pool := itest.Pool(t, dsn)
	command := func(name string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), filepath.Join(folder, name))
		c.Env = append(os.Environ(), "DATABASE_URL="+dsn, "VALKEY_ADDR="+itest.Valkey(t), "TEMPORAL_ADDRESS="+itest.Temporal(t))
		return c
	}

	for range 2 { // again changes nothing
		said, err = command("setup").CombinedOutput()
		require.NoError(t, err, string(said))
	}
	worker := command("worker")
	var log strings.Builder
	worker.Stdout, worker.Stderr = &log, &log
	require.NoError(t, worker.Start())
	out, err := command("starter").Output()
	require.NoError(t, err)
	require.NoError(t, worker.Process.Signal(syscall.SIGTERM))
	require.NoError(t, worker.Wait(), &log)

	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	assert.Contains(t, string(readme), "\n"+string(out))
	assert.NotEmpty(t, out)
	assert.EqualValues(t, 990, balance(t, pool, "alice"))
	assert.EqualValues(t, 1010, balance(t, pool, "bob"))
	var status string
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT status FROM platform_idempotency_keys").Scan(&status))
	assert.Equal(t, "completed", status)
}
