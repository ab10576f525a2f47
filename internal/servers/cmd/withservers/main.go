// Command withservers runs another command with PostgreSQL, Valkey and
// Temporal servers to use, and stops the servers afterwards:
//
//	withservers go test ./...
//
// The command finds them by DATABASE_URL, VALKEY_ADDR and TEMPORAL_ADDRESS.
// A server that one of the variables names already is used and left alone.
// Without a command it only builds what the servers need. Its exit status is
// the command's, or 1 when a server fails.
//
// It may import servers and the standard library.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/effectonce/effectonce/internal/servers"
)

const stopLimit = 30 * time.Second

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "withservers:", err)
		code = 1
	}
	os.Exit(code)
}

// run returns the command's exit status.
func run(ctx context.Context, command []string, in io.Reader, out, said io.Writer) (code int, err error) {
	if len(command) == 0 {
		return 0, servers.PrepareTemporal(ctx)
	}
	environment, stop, err := start(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return 1, err
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // it is what the caller asks for
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopLimit
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return max(exit.ExitCode(), 1), nil // -1: by a signal
	}
	return 0, err
}

// start starts the servers side by side and returns what the command's
// environment says of them. stop is to be called in any case.
func start(ctx context.Context) (environment []string, stop func() error, err error) {
	var (
		group sync.WaitGroup
		mu    sync.Mutex
		stops []func(context.Context) error
		errs  []error
	)
	launch := func(begin func() (assignment string, stop func(context.Context) error, err error)) {
		group.Add(1)
		go func() {
			defer group.Done()
			assignment, stop, err := begin()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, err)
				return
			}
			environment, stops = append(environment, assignment), append(stops, stop)
		}()
	}
	launch(func() (string, func(context.Context) error, error) {
		server, err := servers.UsePostgres(ctx, servers.PostgresOptions{})
		if err != nil {
			return "", nil, err
		}
		return servers.DatabaseURL + "=" + server.URL(), server.Stop, nil
	})
	launch(func() (string, func(context.Context) error, error) {
		server, err := servers.UseValkey(ctx, servers.ValkeyOptions{})
		if err != nil {
			return "", nil, err
		}
		return servers.ValkeyAddr + "=" + server.Addr(), server.Stop, nil
	})
	launch(func() (string, func(context.Context) error, error) {
		server, err := servers.UseTemporal(ctx, servers.TemporalOptions{})
		if err != nil {
			return "", nil, err
		}
		return servers.TemporalAddress + "=" + server.Address(), server.Stop, nil
	})
	group.Wait()
	return environment, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit)
		defer cancel()
		var errs []error
		for _, stop := range stops {
			errs = append(errs, stop(ctx))
		}
		return errors.Join(errs...)
	}, errors.Join(errs...)
}
