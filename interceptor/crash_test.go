package interceptor_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/internal/wire"
)

// victimEnv tells the test's own program to be a worker that will be killed.
const victimEnv = "EFFECTONCE_TEST_VICTIM"

// victim is what the worker is told: the addresses lead through proxies.
type victim struct {
	DSN, Valkey, Temporal, Prefix, Queue string
}

// command is the victim's process, not started yet; it has ended when the test does.
func (v victim) command(t *testing.T) *exec.Cmd {
	t.Helper()
	told, err := json.Marshal(v)
	require.NoError(t, err)
	process := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // the test binary itself
	process.Env = append(os.Environ(), victimEnv+"="+string(told))
	process.Stderr = os.Stderr
	t.Cleanup(func() {
		if process.Process != nil {
			_ = process.Process.Kill()
			_ = process.Wait()
		}
	})
	return process
}

// victimMain is a worker as a user would write it.
func victimMain() int {
	err := func() error {
		var v victim
		if err := json.Unmarshal([]byte(os.Getenv(victimEnv)), &v); err != nil {
			return err
		}
		pool, err := pgxpool.New(context.Background(), v.DSN)
		if err != nil {
			return err
		}
		plugin, err := interceptor.NewPlugin(interceptor.Options{
			Pool: pool,
			Gate: &gate.Config{
				Valkey: valkey.ClientOption{InitAddress: []string{v.Valkey}}, Prefix: v.Prefix, Timeout: 20 * time.Second,
			},
		})
		if err != nil {
			return err
		}
		c, err := client.Dial(client.Options{HostPort: v.Temporal, Logger: quiet{}, Plugins: []client.Plugin{plugin}})
		if err != nil {
			return err
		}
		w := worker.New(c, v.Queue, worker.Options{})
		registerTransfer(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) (int, error) {
			return imports(ctx, func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) })
		}, name("imports"))
		return w.Run(nil) // until it is killed
	}()
	fmt.Fprintln(os.Stderr, "victim:", err)
	return 1
}

func registerTransfer(w worker.Worker) {
	registerOne(w)
	w.RegisterActivityWithOptions(does, name("does"))
}

// TestCrashTable kills a worker's whole process at each step of the protocol,
// or stops it, and lets another worker get what Temporal delivers next.
func TestCrashTable(t *testing.T) {
	t.Parallel()
	type proxies struct{ pg, valkey, temporal *wire.Proxy }
	pg := func(p proxies) *wire.Proxy { return p.pg }
	vk := func(p proxies) *wire.Proxy { return p.valkey }
	commitAnswered := wire.AnswerTo(wire.Commit())
	for title, c := range map[string]struct {
		on      func(proxies) *wire.Proxy
		at      func(prefix string) wire.Match
		action  wire.Action
		silence bool // Temporal must not hear from COMMIT's answer on
		stop    bool // SIGSTOP instead of SIGKILL: the host is stopped, not gone
		want    []string
	}{
		"before the claim": {
			on: pg, at: func(string) wire.Match { return wire.Contains("_claim(") }, action: wire.CutBefore,
			want: []string{"executed"},
		},
		"after the claim, in the body": {
			on: pg, at: func(string) wire.Match { return wire.AnswerTo(wire.HasPrefix("insert into effects")) }, action: wire.CutBefore,
			want: []string{"executed"},
		},
		"in the body, host stopped": {
			on: pg, at: func(string) wire.Match { return wire.AnswerTo(wire.HasPrefix("insert into effects")) }, action: wire.Pass, stop: true,
			want: []string{"executed"},
		},
		"during COMMIT, which never arrived": {
			on: pg, at: func(string) wire.Match { return wire.Commit() }, action: wire.CutBefore,
			want: []string{"executed"},
		},
		"during COMMIT, which arrived": {
			on: pg, at: func(string) wire.Match { return wire.Commit() }, action: wire.CutAfter,
			want: []string{"ledger_replay"},
		},
		"after COMMIT, before the copy": {
			on: pg, at: func(string) wire.Match { return commitAnswered }, action: wire.CutBefore,
			want: []string{"ledger_replay"},
		},
		"after the copy, before Temporal hears": {
			on: vk, at: copied, action: wire.CutAfter, silence: true,
			want: []string{"gate_replay"},
		},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			p := proxies{pg: nil, valkey: listen(t, itest.Valkey(t), wire.RESP), temporal: listen(t, itest.Temporal(t), wire.Raw)}
			var dsn string
			var err error
			p.pg, dsn, err = wire.Through(t.Context(), b.dsn)
			require.NoError(t, err)
			t.Cleanup(p.pg.Close)

			process := victim{DSN: named(t, dsn), Valkey: p.valkey.Addr(), Temporal: p.temporal.Addr(), Prefix: b.prefix, Queue: b.queue}.command(t)
			signal := syscall.SIGKILL
			if c.stop {
				signal = syscall.SIGSTOP
			}
			if c.silence {
				p.pg.Arm(wire.Rule{Match: commitAnswered, Do: func(*wire.Event) { p.temporal.BlackHole() }})
			}
			hit := c.on(p).Arm(wire.Rule{Match: c.at(b.prefix), Action: c.action, Do: func(*wire.Event) {
				assert.NoError(t, process.Process.Signal(signal))
			}})
			require.NoError(t, process.Start())

			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
			defer cancel()
			run, err := b.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{TaskQueue: b.queue, WorkflowTaskTimeout: time.Second}, one,
				withDefaults(workflow.ActivityOptions{StartToCloseTimeout: 2 * time.Second}), "does", []any{"money"})
			require.NoError(t, err)
			select {
			case <-hit.Fired():
			case <-ctx.Done():
				t.Fatal("the worker never came to the crash point")
			}
			t.Log("crash point:", title)
			b.worker(t, registerTransfer)
			var got string
			require.NoError(t, run.Get(ctx, &got))
			require.Equal(t, "did money", got)
			require.Equal(t, c.want, b.outcomes())
			require.Equal(t, 1, b.effects(t, "money"))
			if c.stop { // the zombie wakes up, and finds out that it is one
				require.NoError(t, process.Process.Signal(syscall.SIGCONT))
				require.Equal(t, 1, b.effects(t, "money"))
				require.Equal(t, []string{"completed/1"}, b.statuses(t))
			}
		})
	}
}

// copied matches the answer to a copy to the gate; a start asks for the same
// right once, with a key of its own.
func copied(prefix string) wire.Match {
	copies := wire.Command("EVAL", prefix)
	return wire.AnswerTo(func(e *wire.Event) bool { return copies(e) && !strings.HasPrefix(e.Key, prefix+"start/") })
}

func listen(t *testing.T, upstream string, protocol wire.Protocol) *wire.Proxy {
	t.Helper()
	p, err := wire.Listen(t.Context(), upstream, protocol)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// named gives the victim's connections a name of their own.
func named(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	q := u.Query()
	q.Set("application_name", "victim")
	u.RawQuery = q.Encode()
	return u.String()
}

// imports writes ten rows in its transaction and heartbeats after each; it
// resumes from what the heartbeats say.
func imports(ctx context.Context, atHalf func()) (rows int, err error) {
	from := 0
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &from); err != nil {
			return 0, err
		}
	}
	for i := from; i < 10; i++ {
		if err := ledgertest.Effect(ctx, "row"); err != nil {
			return 0, err
		}
		activity.RecordHeartbeat(ctx, i+1)
		if i == 5 {
			atHalf()
		}
	}
	return 10 - from, nil
}

// TestAnImportThatIsKilledAtHalfEndsWithEveryRow: the rows before the kill were
// rolled back, and the heartbeats that told of them were withheld.
func TestAnImportThatIsKilledAtHalfEndsWithEveryRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	process := victim{DSN: b.dsn, Valkey: itest.Valkey(t), Temporal: itest.Temporal(t), Prefix: b.prefix, Queue: b.queue}.command(t)
	require.NoError(t, process.Start())
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue, WorkflowTaskTimeout: time.Second}, one,
		withDefaults(workflow.ActivityOptions{HeartbeatTimeout: 2 * time.Second}), "imports", []any{})
	require.NoError(t, err)
	require.ErrorContains(t, process.Wait(), "killed")
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) (int, error) { return imports(ctx, func() {}) }, name("imports"))
	})
	var rows int
	require.NoError(t, run.Get(t.Context(), &rows))
	require.Equal(t, 10, rows)
	require.Equal(t, 10, b.effects(t, "row"))
}
