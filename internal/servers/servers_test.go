package servers_test

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	"go.uber.org/goleak"

	"github.com/effectonce/effectonce/internal/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// handle is what every server can do.
type handle interface {
	Owned() bool
	Stop(ctx context.Context) error
	Kill() error
	Restart(ctx context.Context) error
	Pause() error
	Resume() error
}

// kind is a server and a way to use it.
type kind struct {
	start func(t *testing.T) (server handle, address string, ask func(context.Context) error)
	use   func(t *testing.T) handle
}

func kinds() map[string]kind {
	return map[string]kind{
		"postgres": {
			start: func(t *testing.T) (handle, string, func(context.Context) error) {
				server, err := servers.StartPostgres(t.Context(), servers.PostgresOptions{})
				require.NoError(t, err)
				return server, server.Addr(), func(ctx context.Context) error {
					conn, err := pgx.Connect(ctx, server.URL())
					if err != nil {
						return err
					}
					return conn.Close(ctx)
				}
			},
			use: func(t *testing.T) handle {
				server, err := servers.UsePostgres(t.Context(), servers.PostgresOptions{})
				require.NoError(t, err)
				assert.Equal(t, "theirs:5432", server.Addr())
				return server
			},
		},
		"valkey": {
			start: func(t *testing.T) (handle, string, func(context.Context) error) {
				server, err := servers.StartValkey(t.Context(), servers.ValkeyOptions{Password: "sesame"})
				require.NoError(t, err)
				return server, server.Addr(), func(ctx context.Context) error {
					return askValkey(ctx, server.Addr(), "sesame")
				}
			},
			use: func(t *testing.T) handle {
				server, err := servers.UseValkey(t.Context(), servers.ValkeyOptions{})
				require.NoError(t, err)
				assert.Equal(t, "theirs:6379", server.Addr())
				return server
			},
		},
		"temporal": {
			start: func(t *testing.T) (handle, string, func(context.Context) error) {
				server, err := servers.StartTemporal(t.Context(), servers.TemporalOptions{})
				require.NoError(t, err)
				assert.Equal(t, "default", server.Namespace())
				assert.Empty(t, server.UIAddress())
				return server, server.Address(), server.Ask
			},
			use: func(t *testing.T) handle {
				server, err := servers.UseTemporal(t.Context(), servers.TemporalOptions{})
				require.NoError(t, err)
				assert.Equal(t, "theirs:7233", server.Address())
				return server
			},
		},
	}
}

func askValkey(ctx context.Context, addr, password string) error {
	client, err := valkey.NewClient(valkey.ClientOption{
		InitAddress: []string{addr}, Password: password, ForceSingleClient: true, DisableRetry: true,
		DisableCache: true, Dialer: net.Dialer{Timeout: 100 * time.Millisecond},
	})
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Do(ctx, client.B().Ping().Build()).Error()
}

func TestServersLiveAndDie(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, address, ask := kind.start(t)
			defer func() { assert.NoError(t, server.Stop(context.WithoutCancel(t.Context()))) }()
			assert.True(t, server.Owned())
			require.NoError(t, ask(t.Context()))

			require.NoError(t, server.Kill())
			require.Error(t, ask(t.Context()))
			require.NoError(t, server.Kill(), "once more")
			require.ErrorContains(t, server.Pause(), "does not run")

			require.NoError(t, server.Restart(t.Context()))
			require.NoError(t, ask(t.Context()), "on the same port")
			require.NoError(t, server.Restart(t.Context()), "a running one")
			require.NoError(t, ask(t.Context()))

			require.NoError(t, server.Pause())
			paused, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			require.Error(t, ask(paused))
			require.NoError(t, server.Resume())
			require.NoError(t, ask(t.Context()))

			family, folder := servers.Family(server), servers.Folder(server)
			assert.DirExists(t, folder)
			require.NoError(t, server.Pause(), "a paused server stops as well")
			require.NoError(t, server.Stop(t.Context()))
			require.NoError(t, server.Stop(t.Context()), "once more")
			require.Error(t, ask(t.Context()))
			require.ErrorContains(t, server.Restart(t.Context()), "has been stopped")
			assert.NoDirExists(t, folder)
			for _, pid := range family {
				assert.False(t, servers.Alive(pid), "process %d is left", pid)
			}
			listener, err := net.Listen("tcp", address)
			require.NoError(t, err, "the port is free again")
			require.NoError(t, listener.Close())
		})
	}
}

func TestServersOfOthersAreLeftAlone(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://user:secret@theirs/db")
	t.Setenv("VALKEY_ADDR", "theirs:6379")
	t.Setenv("TEMPORAL_ADDRESS", "theirs:7233")
	for name, kind := range kinds() { //nolint:paralleltest // the environment is the whole process's
		t.Run(name, func(t *testing.T) {
			server := kind.use(t)
			assert.False(t, server.Owned())
			require.NoError(t, server.Stop(t.Context()))
			require.ErrorIs(t, server.Kill(), servers.ErrNotOwned)
			require.ErrorIs(t, server.Restart(t.Context()), servers.ErrNotOwned)
			require.ErrorIs(t, server.Pause(), servers.ErrNotOwned)
			require.ErrorIs(t, server.Resume(), servers.ErrNotOwned)
		})
	}
}

func TestPostgresTakesSettings(t *testing.T) {
	t.Parallel()
	server, err := servers.StartPostgres(t.Context(), servers.PostgresOptions{
		Durable: true, Settings: map[string]string{"max_prepared_transactions": "7"},
	})
	require.NoError(t, err)
	defer func() { assert.NoError(t, server.Stop(context.WithoutCancel(t.Context()))) }()
	conn, err := pgx.Connect(t.Context(), server.URL())
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	for name, want := range map[string]string{
		"max_prepared_transactions": "7", "fsync": "on", "full_page_writes": "on",
		"synchronous_commit": "on", "listen_addresses": "127.0.0.1", "server_encoding": "UTF8",
	} {
		var got string
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&got))
		assert.Equal(t, want, got, name)
	}
}

func TestKilledPostgresKeepsWhatWasCommitted(t *testing.T) {
	t.Parallel()
	server, err := servers.StartPostgres(t.Context(), servers.PostgresOptions{})
	require.NoError(t, err)
	defer func() { assert.NoError(t, server.Stop(context.WithoutCancel(t.Context()))) }()
	conn, err := pgx.Connect(t.Context(), server.URL())
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS answer")
	require.NoError(t, err)
	busy := keepBusy(t, server.URL(), conn)
	require.NoError(t, server.Kill())
	assert.False(t, servers.Alive(busy), "a backend that never looks whether its postmaster lives")
	require.Error(t, conn.Ping(t.Context()))
	require.NoError(t, server.Restart(t.Context()))
	conn, err = pgx.Connect(t.Context(), server.URL())
	require.NoError(t, err)
	var answer int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT answer FROM kept").Scan(&answer))
	assert.Equal(t, 42, answer)
	require.NoError(t, conn.Close(t.Context()))
}

// keepBusy has a backend of its own count without end, and returns its process.
func keepBusy(t *testing.T, dsn string, watcher *pgx.Conn) int {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	pid, ended := int(conn.PgConn().PID()), make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.WithoutCancel(t.Context()), "DO $$ BEGIN LOOP END LOOP; END $$")
		ended <- err
	}()
	t.Cleanup(func() { assert.Error(t, <-ended) })
	require.Eventually(t, func() bool {
		var state string
		err := watcher.QueryRow(t.Context(), "SELECT state FROM pg_stat_activity WHERE pid = $1", pid).Scan(&state)
		return err == nil && state == "active"
	}, 30*time.Second, time.Millisecond)
	return pid
}

func TestStrangersAreRefused(t *testing.T) {
	t.Parallel()
	server, err := servers.StartPostgres(t.Context(), servers.PostgresOptions{})
	require.NoError(t, err)
	defer func() { assert.NoError(t, server.Stop(context.WithoutCancel(t.Context()))) }()
	_, err = pgx.Connect(t.Context(), "postgres://postgres:guess@"+server.Addr()+"/postgres?sslmode=disable")
	require.Error(t, err)
}

func TestServerThatCannotStartTellsWhy(t *testing.T) {
	t.Parallel()
	_, err := servers.StartPostgres(t.Context(), servers.PostgresOptions{Settings: map[string]string{"no_such": "1"}})
	require.ErrorContains(t, err, `unrecognized configuration parameter "no_such"`)
	_, err = servers.StartValkey(t.Context(), servers.ValkeyOptions{Args: []string{"--no-such", "1"}})
	require.ErrorContains(t, err, "no-such")
}

func TestTemporalKeepsItsStateAndShowsIt(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "state.db")
	server, err := servers.StartTemporal(t.Context(), servers.TemporalOptions{UI: true, DBFile: file})
	require.NoError(t, err)
	defer func() { assert.NoError(t, server.Stop(context.WithoutCancel(t.Context()))) }()
	id := namespaceID(t, server)
	require.NoError(t, server.Restart(t.Context()))
	assert.Equal(t, id, namespaceID(t, server))
	require.NoError(t, server.Stop(t.Context()))
	assert.FileExists(t, file)
}

func TestOldTemporalCLIIsNotUsed(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]bool{
		"temporal version 1.5.1 (Server 1.29.1, UI 2.42.1)":         false,
		"temporal version 1.9.0 (Server 1.32.0-162.0, UI 2.53.1)":   true,
		"temporal version 2.0.0 (Server 2.0.0, UI 3.0.0)":           true,
		"temporal version 0.0.0-DEV (Server 1.100.0, UI 2.42.1)":    true,
		"temporal version 9.9.9":                                    false,
		"a program of the same name":                                false,
		"temporal (Server 99999999999999999999.1 is not a version)": false,
	} {
		assert.Equal(t, want, servers.NewEnough(said), said)
	}
}

// namespaceID asks the web UI's own API, which asks the server.
func namespaceID(t *testing.T, server *servers.Temporal) string {
	t.Helper()
	var answer struct {
		NamespaceInfo struct{ ID string }
	}
	ask := func() bool {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			"http://"+server.UIAddress()+"/api/v1/namespaces/"+server.Namespace(), http.NoBody)
		require.NoError(t, err)
		transport := &http.Transport{DisableKeepAlives: true}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return false
		}
		defer func() { _ = response.Body.Close() }()
		return response.StatusCode == http.StatusOK && json.NewDecoder(response.Body).Decode(&answer) == nil
	}
	require.Eventually(t, ask, 30*time.Second, 10*time.Millisecond, "the UI starts after the server")
	require.NotEmpty(t, answer.NamespaceInfo.ID)
	return answer.NamespaceInfo.ID
}

func TestMissingProgramsAreNamed(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := servers.StartValkey(t.Context(), servers.ValkeyOptions{})
	require.ErrorContains(t, err, "valkey-server is not installed: run `make deps`")
}

func TestFoldersOfTheDeadAreSwept(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	require.NoError(t, os.Chmod(folder, 0o755))
	live, dead, young := servers.NewFolder(t), servers.NewFolder(t), servers.NewFolder(t)
	for _, f := range []servers.TestFolder{live, dead} {
		f.Age(t, time.Hour)
	}
	dead.Unlock(t)
	young.Unlock(t)
	servers.Sweep()
	assert.DirExists(t, live.Path())
	assert.DirExists(t, young.Path())
	assert.NoDirExists(t, dead.Path())
}
