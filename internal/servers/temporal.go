package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

const (
	temporalTitle = "Temporal"
	namespace     = "default"
)

// TemporalOptions are the settings of a private Temporal server.
type TemporalOptions struct {
	// UI starts the web UI too. Default: false.
	UI bool
	// DBFile is the SQLite file that keeps the server's state. Default: one in
	// the server's own folder, which outlives Kill and Restart but not Stop.
	DBFile string
}

// Temporal is a Temporal server.
type Temporal struct {
	server
	address   string
	uiAddress string
}

// Address is the host and port of the server's gRPC API, or what
// TEMPORAL_ADDRESS says.
func (t *Temporal) Address() string { return t.address }

// UIAddress is the host and port of the web UI. It is empty where there is
// none, or none that we know of.
func (t *Temporal) UIAddress() string { return t.uiAddress }

// Namespace is a namespace that the server has.
func (t *Temporal) Namespace() string { return namespace }

// UseTemporal returns the server that TEMPORAL_ADDRESS names, which stays the
// user's own, or starts a private one.
func UseTemporal(ctx context.Context, options TemporalOptions) (*Temporal, error) {
	if address := os.Getenv(TemporalAddress); address != "" {
		return &Temporal{server: server{title: temporalTitle}, address: address}, nil
	}
	return StartTemporal(ctx, options)
}

// StartTemporal starts a private Temporal server: the Temporal CLI's when it is
// on PATH and brings server 1.32 or later, else the repository's own, which is
// built first if need be. That takes minutes, once.
func StartTemporal(ctx context.Context, options TemporalOptions) (*Temporal, error) {
	program, err := temporalProgram(ctx)
	if err != nil {
		return nil, fmt.Errorf("servers: prepare %s: %w", temporalTitle, err)
	}
	t := &Temporal{server: server{title: temporalTitle}}
	if t.folder, err = newFolder("temporal", nil); err != nil {
		return nil, fmt.Errorf("servers: prepare %s: %w", temporalTitle, err)
	}
	t.launch = launch{program: program.path, ready: t.ready, stop: syscall.SIGTERM}
	if options.DBFile == "" {
		options.DBFile = filepath.Join(t.folder.path, "temporal.db")
		t.launch.stop = syscall.SIGKILL // nothing to keep, so nothing to wait for
	}
	err = onFreePort(func(port int) error {
		uiPort := 0
		if options.UI {
			if uiPort, err = freePort(); err != nil {
				return err
			}
			t.uiAddress = loopback(uiPort)
		}
		t.address = loopback(port)
		t.launch.args = program.arguments(port, uiPort, options.DBFile)
		return t.start(ctx)
	})
	if err != nil {
		return nil, errors.Join(err, t.folder.remove())
	}
	return t, nil
}

// ready asks the server how it is.
func (t *Temporal) ready(ctx context.Context, _ int) error {
	return askHealth(ctx, t.address, "temporal.api.workflowservice.v1.WorkflowService")
}

// temporalServer is a program that is a Temporal server.
type temporalServer struct {
	path string
	cli  bool // the Temporal CLI, not our own
}

// arguments renders the program's command line. The CLI is told what our own
// program does unasked.
func (s temporalServer) arguments(port, uiPort int, dbFile string) []string {
	if !s.cli {
		return []string{
			"--port", strconv.Itoa(port), "--ui-port", strconv.Itoa(uiPort),
			"--db-file", dbFile, "--namespace", namespace,
		}
	}
	args := []string{
		"server", "start-dev", "--ip", "127.0.0.1", "--port", strconv.Itoa(port),
		"--db-filename", dbFile, "--log-level", "error",
		"--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=normal",
	}
	for _, value := range []string{
		"activity.enableStandalone=true",
		"history.enableChasm=true",
		"history.enableStandaloneActivityOperatorCommands=true",
		"frontend.namespaceRPS=1000000",
		"frontend.namespaceRPS.visibility=1000000",
		"history.transferProcessorMaxPollRPS=1000000",
		"history.timerProcessorMaxPollRPS=1000000",
		"history.visibilityProcessorMaxPollRPS=1000000",
		"matching.numTaskqueueReadPartitions=1",
		"matching.numTaskqueueWritePartitions=1",
	} {
		args = append(args, "--dynamic-config-value", value)
	}
	if uiPort == 0 {
		return append(args, "--headless")
	}
	return append(args, "--ui-port", strconv.Itoa(uiPort))
}
