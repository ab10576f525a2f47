package payment_test

import (
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/samples/payment"
)

func TestMain(m *testing.M) { os.Exit(itest.Main(m)) }

// TestAWorkerIsKilledBetweenTheCallAndTheRecord does what the README says, and
// kills the worker when the service has charged the card and not answered yet.
// Another worker pays the order with the same charge.
func TestAWorkerIsKilledBetweenTheCallAndTheRecord(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	said, err := exec.CommandContext(t.Context(), "go", "build", "-o", folder, "./setup", "./worker", "./starter").CombinedOutput()
	require.NoError(t, err, string(said))
	dsn := itest.Database(t)
	var victim atomic.Pointer[exec.Cmd]
	killed := make(chan struct{})
	provider := &payment.Provider{Charged: func() {
		assert.NoError(t, victim.Load().Process.Kill())
		close(killed)
	}}
	service := httptest.NewServer(provider)
	defer service.Close()
	command := func(name string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), filepath.Join(folder, name))
		c.Env = append(os.Environ(), "DATABASE_URL="+dsn, "VALKEY_ADDR="+itest.Valkey(t), "TEMPORAL_ADDRESS="+itest.Temporal(t),
			"PAYMENT_ADDR="+strings.TrimPrefix(service.URL, "http://"))
		return c
	}
	said, err = command("setup").CombinedOutput()
	require.NoError(t, err, string(said))

	first, second := command("worker"), command("worker")
	require.NoError(t, first.Start())
	victim.Store(first)
	paid := make(chan string, 1)
	go func() {
		out, err := command("starter").Output()
		assert.NoError(t, err)
		paid <- string(out)
	}()
	<-killed
	require.Error(t, first.Wait())
	var log strings.Builder
	second.Stdout, second.Stderr = &log, &log
	require.NoError(t, second.Start())
	out := <-paid
	require.NoError(t, second.Process.Signal(syscall.SIGTERM))
	require.NoError(t, second.Wait(), &log)

	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	assert.Contains(t, string(readme), "\n"+out)
	assert.NotEmpty(t, out)
	assert.Equal(t, 1, provider.Charges())
	pool := itest.Pool(t, dsn)
	var status string
	var attempt int
	require.NoError(t, pool.QueryRow(t.Context(), "SELECT status, attempt FROM platform_idempotency_keys").Scan(&status, &attempt))
	assert.Equal(t, "completed", status)
	assert.Equal(t, 2, attempt)
}
