package main

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/servers"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == asWorker { // the test's program is its workers' too
		exit(work(context.Background()))
	}
	os.Exit(itest.Main(m))
}

// reader is a terminal whose reader interrupts when the last line is there.
type reader struct {
	strings.Builder
	interrupt context.CancelFunc
}

func (r *reader) Write(b []byte) (int, error) {
	n, err := r.Builder.Write(b)
	if strings.HasPrefix(strings.TrimSpace(string(b)), "{") {
		r.interrupt()
	}
	return n, err
}

// shows runs the demo and looks at what it has shown.
func shows(t *testing.T, o options) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &reader{interrupt: func() {}}
	if o.keep {
		out.interrupt = cancel
	}
	require.NoError(t, run(ctx, o, out), out)
	text := strings.TrimSuffix(out.String(), "\n")
	lines := strings.Split(text, "\n")
	for _, line := range lines[:len(lines)-1] {
		assert.True(t, len(line) <= 80 || strings.Contains(line, os.TempDir()), line)
	}
	assert.NotContains(t, text, "postgres://", "it holds a password")

	var last map[string]int
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &last), text)
	for _, name := range []string{"doubled", "lost", "wrong_receipts"} {
		assert.Contains(t, last, name)
		assert.Zero(t, last[name], name)
	}
	for _, name := range []string{"executions", "effects", "doubled_without", "killed_after_commit", "gate_hits", "ledger_replays", "degraded"} {
		assert.Positive(t, last[name], name)
	}
	assert.Equal(t, last["executions"], last["effects"])
	assert.Contains(t, text, "RunActivity:MoveMoney")
	assert.Contains(t, text, "delivery 2: ledger_replay of row ")
	return text
}

func TestDemoOnItsOwnServers(t *testing.T) {
	t.Parallel()
	text := shows(t, options{private: true, keep: true})
	assert.Contains(t, text, "Valkey killed")
	_, after, found := strings.Cut(text, "PGPASSFILE=")
	require.True(t, found)
	assert.NoFileExists(t, strings.Fields(after)[0])
}

// TestDemoOnTheUsersServers is one after the other: it sets the environment.
func TestDemoOnTheUsersServers(t *testing.T) {
	t.Setenv(servers.DatabaseURL, itest.Database(t))
	t.Setenv(servers.ValkeyAddr, itest.Valkey(t))
	t.Setenv(servers.TemporalAddress, itest.Temporal(t))
	assert.Contains(t, shows(t, options{}), "cut off from the workers")
}

func TestEachFigureCounts(t *testing.T) {
	t.Parallel()
	good := figures{
		Executions: 9, Effects: 9, DoubledWithout: 1, KilledAfterCommit: 1, GateHits: 1, LedgerReplays: 1, Degraded: 1,
	}
	require.NoError(t, good.verdict())
	for name, spoil := range map[string]func(*figures){
		"executions":          func(f *figures) { f.Executions = 0 },
		"effects":             func(f *figures) { f.Effects = 0 },
		"doubled_without":     func(f *figures) { f.DoubledWithout = 0 },
		"killed_after_commit": func(f *figures) { f.KilledAfterCommit = 0 },
		"doubled":             func(f *figures) { f.Doubled = 1 },
		"lost":                func(f *figures) { f.Lost = 1 },
		"wrong_receipts":      func(f *figures) { f.WrongReceipts = 1 },
		"gate_hits":           func(f *figures) { f.GateHits = 0 },
		"ledger_replays":      func(f *figures) { f.LedgerReplays = 0 },
		"degraded":            func(f *figures) { f.Degraded = 0 },
	} {
		f := good
		spoil(&f)
		assert.ErrorContains(t, f.verdict(), name)
	}
}
