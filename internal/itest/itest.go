// Package itest gives tests real servers: one PostgreSQL, Valkey and Temporal
// shared by a test process and started when the first test asks, a database of
// its own for every test, and private servers for tests that kill them. When
// DATABASE_URL, VALKEY_ADDR or TEMPORAL_ADDRESS is set, the server it names is
// shared instead.
//
// Only tests may import it. It may import servers, the clients of the servers
// and the test libraries.
package itest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/effectonce/effectonce/internal/servers"
)

// limit bounds everything that is done for a test outside of it.
const limit = 60 * time.Second

// Main runs a package's tests, stops the servers they shared, and fails when
// a goroutine is left:
//
//	func TestMain(m *testing.M) { os.Exit(itest.Main(m)) }
func Main(m *testing.M, options ...goleak.Option) int {
	code := m.Run()
	err := stopShared()
	if code == 0 {
		err = errors.Join(err, goleak.Find(options...))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "itest:", err)
		return max(code, 1)
	}
	return code
}

// Valkey returns the address of the shared Valkey server. Tests keep apart by
// prefixes of their own; one that flushes takes a private server.
func Valkey(t testing.TB) string {
	t.Helper()
	return sharedValkey.get(t).Addr()
}

// Temporal returns the address of the shared Temporal server, whose namespace
// "default" is there. Tests keep apart by task queues and workflow IDs.
func Temporal(t testing.TB) string {
	t.Helper()
	return sharedTemporal.get(t).Address()
}

// PrivatePostgres starts a PostgreSQL server for this test alone.
func PrivatePostgres(t testing.TB, options servers.PostgresOptions) *servers.Postgres {
	t.Helper()
	return private(t, options, servers.StartPostgres)
}

// PrivateValkey starts a Valkey server for this test alone.
func PrivateValkey(t testing.TB, options servers.ValkeyOptions) *servers.Valkey {
	t.Helper()
	return private(t, options, servers.StartValkey)
}

// PrivateTemporal starts a Temporal server for this test alone.
func PrivateTemporal(t testing.TB, options servers.TemporalOptions) *servers.Temporal {
	t.Helper()
	return private(t, options, servers.StartTemporal)
}

// stopper is what the servers have in common here.
type stopper interface {
	comparable
	Stop(ctx context.Context) error
}

func private[S stopper, O any](t testing.TB, options O, start func(context.Context, O) (S, error)) S {
	t.Helper()
	server, err := start(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bounded(server.Stop); err != nil {
			t.Error(err)
		}
	})
	return server
}

// shared is a server that the tests of a process have in common.
type shared[S stopper] struct {
	start func(context.Context) (S, error)

	mu     sync.Mutex
	server S
	err    error
}

// The package's only variables: a test process has no other place to keep
// what its tests share.
var (
	sharedPostgres = shared[*servers.Postgres]{start: func(ctx context.Context) (*servers.Postgres, error) {
		return servers.UsePostgres(ctx, servers.PostgresOptions{})
	}}
	sharedValkey = shared[*servers.Valkey]{start: func(ctx context.Context) (*servers.Valkey, error) {
		return servers.UseValkey(ctx, servers.ValkeyOptions{})
	}}
	sharedTemporal = shared[*servers.Temporal]{start: func(ctx context.Context) (*servers.Temporal, error) {
		return servers.UseTemporal(ctx, servers.TemporalOptions{})
	}}
)

// get starts the server for the first test that asks. When that fails, it
// fails for all of them.
func (s *shared[S]) get(t testing.TB) S {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	var none S
	if s.server == none && s.err == nil {
		s.server, s.err = s.start(context.WithoutCancel(t.Context()))
	}
	if s.err != nil {
		t.Fatal(s.err)
	}
	return s.server
}

func (s *shared[S]) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none S
	if s.server == none {
		return nil
	}
	return bounded(s.server.Stop)
}

func stopShared() error {
	return errors.Join(sharedPostgres.stop(), sharedValkey.stop(), sharedTemporal.stop())
}

func bounded(do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return do(ctx)
}
