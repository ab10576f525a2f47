package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/valkey-io/valkey-go"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/contrib/opentelemetry"
	sdkinterceptor "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/worker"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/internal/servers"
	"github.com/effectonce/effectonce/samples/transfer"
)

// What a worker is told beside the three servers' variables.
const (
	envName   = "DEMO_WORKER" // what it is called
	envQueue  = "DEMO_QUEUE"
	envPrefix = "DEMO_PREFIX" // of the keys in Valkey; empty: no plugin
	envSpans  = "DEMO_SPANS"  // where the spans go
)

// said tells the parent that the worker works.
const said = "ready\n"

// atOnce is how many activities a worker runs at the same time.
const atOnce = 5

// work is a worker's main function. It ends when the standard input does, which
// is when the parent says so, or when the parent is gone.
func work(ctx context.Context) error {
	signal.Ignore(syscall.SIGINT) // an interrupt at the terminal is the parent's to handle
	name := os.Getenv(envName)
	tracing, err := newTracing(ctx, os.Getenv(envSpans), name)
	if err != nil {
		return err
	}
	defer tracing.close(ctx)
	config, err := pgxpool.ParseConfig(os.Getenv(servers.DatabaseURL))
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["application_name"] = name
	config.MaxConns = atOnce
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()

	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	clientOptions, err := clientOptions(os.Getenv(servers.TemporalAddress), tracing.provider, logger)
	if err != nil {
		return err
	}
	var move any = unprotected{pool}.MoveMoney
	if prefix := os.Getenv(envPrefix); prefix != "" {
		plugin, err := newPlugin(pool, prefix, name, tracing.provider, logger)
		if err != nil {
			return err
		}
		clientOptions.Plugins = []client.Plugin{plugin}
		move = transfer.MoveMoney
	}
	c, err := client.DialContext(ctx, clientOptions)
	if err != nil {
		return err
	}
	defer c.Close()
	w := worker.New(c, os.Getenv(envQueue), worker.Options{
		MaxConcurrentActivityExecutionSize: atOnce,
		// A workflow that a dead worker had in its cache goes to another soon.
		StickyScheduleToStartTimeout: 200 * time.Millisecond,
		WorkerStopTimeout:            10 * time.Second,
	})
	w.RegisterWorkflow(transfer.MoneyTransfer)
	w.RegisterActivityWithOptions(move, activity.RegisterOptions{Name: "MoveMoney"})
	if err := w.Start(); err != nil {
		return err
	}
	defer w.Stop()
	if _, err := io.WriteString(os.Stdout, said); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// newPlugin is what the sample's worker does, and what the demo needs to see.
func newPlugin(pool *pgxpool.Pool, prefix, name string, provider trace.TracerProvider, logger *slog.Logger) (*interceptor.Plugin, error) {
	return interceptor.NewPlugin(interceptor.Options{
		Pool: pool,
		Gate: &gate.Config{
			Valkey:  valkey.ClientOption{InitAddress: []string{os.Getenv(servers.ValkeyAddr)}, ClientName: name},
			Prefix:  prefix,
			Timeout: time.Second,            // a machine under load answers late, too
			Probe:   200 * time.Millisecond, // Valkey comes back soon
		},
		TracerProvider: provider,
		Logger:         logger,
	})
}

// clientOptions are the same in the workers and in the parent: with Temporal's
// own interceptor for OpenTelemetry, outside of the plugin's.
func clientOptions(address string, provider trace.TracerProvider, logger *slog.Logger) (client.Options, error) {
	tracing, err := opentelemetry.NewTracingInterceptor(opentelemetry.TracerOptions{Tracer: provider.Tracer("demo")})
	if err != nil {
		return client.Options{}, fmt.Errorf("make the tracing interceptor: %w", err)
	}
	return client.Options{
		HostPort:     address,
		Logger:       log.NewStructuredLogger(logger),
		Interceptors: []sdkinterceptor.ClientInterceptor{tracing},
	}, nil
}

// unprotected is the activity as it would be without the library.
type unprotected struct{ pool *pgxpool.Pool }

// MoveMoney moves the money in a transaction of its own.
func (u unprotected) MoveMoney(ctx context.Context, t transfer.Transfer) (r transfer.Receipt, err error) {
	err = pgx.BeginFunc(ctx, u.pool, func(tx pgx.Tx) error {
		r, err = transfer.Move(ctx, tx, t)
		return err
	})
	return r, err
}
