// Command temporaldev is a Temporal server for development and tests: all its
// services in one process, SQLite beneath, and the web UI if it is asked for.
// It listens on the loopback interface only and keeps nothing secret.
//
// It is a module of its own, because the server's module and the SDK that the
// rest of the repository uses do not compile together. Nothing imports it: the
// package servers builds the program and runs it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/temporalio/ui-server/v2/server"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/server_options"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

const (
	loopback      = "127.0.0.1"
	healthService = "temporal.api.workflowservice.v1.WorkflowService"
	startLimit    = time.Minute
)

// options are the program's flags.
type options struct {
	port      int
	uiPort    int
	dbFile    string
	namespace string
	logLevel  string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "temporaldev:", err)
		os.Exit(1)
	}
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("temporaldev", flag.ContinueOnError)
	flags.IntVar(&o.port, "port", 7233, "port of the gRPC API")
	flags.IntVar(&o.uiPort, "ui-port", 0, "port of the web UI; 0: none")
	flags.StringVar(&o.dbFile, "db-file", "", "SQLite file that keeps the state; empty: in memory")
	flags.StringVar(&o.namespace, "namespace", "default", "namespace that is there from the start")
	flags.StringVar(&o.logLevel, "log-level", "error", "debug, info, warn or error")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	if flags.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return o, nil
}

// run serves until ctx ends, and says on out when it is ready.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	temporal, err := newServer(o)
	if err != nil {
		return err
	}
	if err := temporal.Start(); err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	defer func() {
		if stopErr := temporal.Stop(); stopErr != nil {
			err = errors.Join(err, fmt.Errorf("stop the server: %w", stopErr))
		}
	}()
	if err := awaitServing(ctx, address(o.port)); err != nil {
		return err
	}
	if o.uiPort != 0 {
		ui := newUI(o)
		failed := make(chan error, 1)
		go func() { failed <- ui.Start() }()
		defer func() {
			ui.Stop()
			err = errors.Join(err, <-failed)
		}()
		_, _ = fmt.Fprintf(out, "web UI on http://%s\n", address(o.uiPort))
	}
	_, _ = fmt.Fprintf(out, "ready on %s\n", address(o.port))
	<-ctx.Done()
	return nil
}

func newUI(o options) *server.Server {
	return server.NewServer(server_options.WithConfigProvider(&uiconfig.Config{
		Host:                loopback,
		Port:                o.uiPort,
		TemporalGRPCAddress: address(o.port),
		EnableUI:            true,
		CORS:                uiconfig.CORS{CookieInsecure: true},
		DefaultNamespace:    o.namespace,
		DisableNewsFetch:    true,
		HideLogs:            true,
	}))
}

// awaitServing returns when the frontend says that it serves.
func awaitServing(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to the frontend: %w", err)
	}
	defer func() { _ = conn.Close() }()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		answer, err := healthpb.NewHealthClient(conn).Check(ctx,
			&healthpb.HealthCheckRequest{Service: healthService}, grpc.WaitForReady(true))
		if err == nil && answer.GetStatus() == healthpb.HealthCheckResponse_SERVING {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the frontend: %w", errors.Join(ctx.Err(), err))
		case <-ticker.C:
		}
	}
}

func address(port int) string { return net.JoinHostPort(loopback, strconv.Itoa(port)) }
