// Command demo shows what the library is for: the money-transfer sample runs
// against real servers while its workers are killed, each right after a COMMIT
// and before Temporal hears of it. First without the plugin, and the money
// moves twice; then with it.
//
// It starts PostgreSQL, Valkey and Temporal, or uses those that DATABASE_URL,
// VALKEY_ADDR and TEMPORAL_ADDRESS name. With KEEP=1 all is left running, to be
// looked at, until it is interrupted. The last line that it prints is a JSON
// object, and it fails unless each figure in it is what it has to be.
//
// The package may import effectonce, its internal packages servers and wire, and
// the sample.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// asWorker is the argument that makes the program one of its own workers.
const asWorker = "worker"

func main() {
	if len(os.Args) > 1 && os.Args[1] == asWorker {
		exit(work(context.Background()))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, options{keep: os.Getenv("KEEP") == "1"}, os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
