package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"go.temporal.io/sdk/client"

	"github.com/effectonce/effectonce/internal/servers"
	"github.com/effectonce/effectonce/samples/transfer"
)

const (
	workers  = 3
	crowd    = 40 // transfers of a round
	amount   = 10
	accounts = 8 // that pay, and as many that are paid
	balance  = 1_000_000
	// limit ends a demo that hangs.
	limit = 5 * time.Minute
)

// The names of the two halves begin their transfers' names.
const (
	without = "without"
	with    = "with"
)

// options say how the demo runs.
type options struct {
	keep    bool // leave all running until the context ends
	private bool // start servers whatever the environment says
}

// demo is one run.
type demo struct {
	*stage
	*screen
	tracing *tracing
	spans   *collector
	fleet   *fleet
	client  client.Client

	started  map[string]int              // transfers, by the half
	receipts map[string]transfer.Receipt // by the transfer
	killed   map[string][]string         // workers killed after a COMMIT, by the half
}

// run is the demo. The error says that it failed, or that a figure is wrong.
func run(ctx context.Context, o options, out io.Writer) (err error) {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	failing, fail := context.WithCancelCause(bounded)
	defer fail(nil)
	d := &demo{
		screen:  newScreen(out),
		started: map[string]int{}, receipts: map[string]transfer.Receipt{}, killed: map[string][]string{},
	}
	defer func() { err = errors.Join(err, d.close(ctx)) }()
	if err := d.open(failing, fail, o); err != nil {
		return because(failing, err)
	}
	if err := d.story(failing); err != nil {
		return because(failing, err)
	}
	f, err := d.report(failing)
	if err != nil {
		return err
	}
	if o.keep {
		if err := d.leave(failing); err != nil {
			return err
		}
	}
	d.last(f)
	if o.keep {
		<-ctx.Done()
	}
	return f.verdict()
}

// because puts the cause of a context's end in an error's place.
func because(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

func (d *demo) open(ctx context.Context, fail context.CancelCauseFunc, o options) (err error) {
	d.say("PostgreSQL, Valkey and Temporal start")
	d.more("(the first time Temporal's server is built, which takes minutes)")
	if d.stage, err = newStage(ctx, o.private); err != nil {
		return err
	}
	d.say("PostgreSQL %s, Valkey %s", d.postgres.Addr(), d.valkey.Addr())
	d.more("Temporal %s", d.temporal.Address())
	if ui := d.temporal.UIAddress(); ui != "" {
		d.more("Temporal's UI: http://%s", ui)
	}
	if d.spans, err = newCollector(ctx); err != nil {
		return err
	}
	if d.tracing, err = newTracing(ctx, d.spans.addr(), "demo"); err != nil {
		return err
	}
	options, err := clientOptions(d.temporal.Address(), d.tracing.provider, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	if d.client, err = client.DialContext(ctx, options); err != nil {
		return err
	}
	d.fleet = &fleet{temporal: d.temporal.Address(), working: map[string]*process{}, fail: fail}
	return nil
}

// hire starts the workers of one half.
func (d *demo) hire(ctx context.Context, half string) error {
	prefix := ""
	if half == with {
		prefix = d.id + ":"
	}
	d.fleet.environment = []string{
		servers.DatabaseURL + "=" + d.link,
		servers.ValkeyAddr + "=" + d.resp.Addr(),
		envQueue + "=" + d.id,
		envPrefix + "=" + prefix,
		envSpans + "=" + d.spans.addr(),
	}
	return d.fleet.replace(ctx, workers)
}

// round makes transfers, all at once, and waits until all are done.
func (d *demo) round(ctx context.Context, half string, count int) error {
	type done struct {
		id      string
		receipt transfer.Receipt
		err     error
	}
	results := make(chan done, count)
	for range count {
		d.started[half]++
		n := d.started[half]
		t := transfer.Transfer{
			ID:     fmt.Sprintf("%s-%03d", half, n),
			From:   fmt.Sprintf("payer-%d", 1+n%accounts),
			To:     fmt.Sprintf("payee-%d", 1+n/accounts%accounts),
			Amount: amount,
		}
		go func() {
			receipt, err := d.transfer(ctx, t)
			results <- done{t.ID, receipt, err}
		}()
	}
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var faults []error
	shown, waits := 0, false
	for left := count; left > 0; {
		select {
		case r := <-results:
			left--
			d.receipts[r.id] = r.receipt
			if r.err != nil {
				faults = append(faults, fmt.Errorf("transfer %s: %w", r.id, r.err))
			}
		case <-ticker.C:
			switch {
			case shown != count-left:
				shown = count - left
				d.say("%d of %d are done", shown, count)
			case !waits:
				waits = true
				d.say("Temporal waits for the dead worker's answers until they time out")
			}
		}
	}
	return errors.Join(faults...)
}

// transfer makes one, as the sample's starter does.
func (d *demo) transfer(ctx context.Context, t transfer.Transfer) (r transfer.Receipt, err error) {
	run, err := d.client.ExecuteWorkflow(ctx, client.StartWorkflowOptions{
		ID: d.workflowID(t.ID), TaskQueue: d.id, WorkflowTaskTimeout: time.Second,
	}, transfer.MoneyTransfer, t)
	if err != nil {
		return r, err
	}
	err = run.Get(ctx, &r)
	return r, err
}

func (d *demo) workflowID(transfer string) string { return d.id + "-" + transfer }

// close stops everything, as far as it was started.
func (d *demo) close(ctx context.Context) error {
	var faults []error
	if d.fleet != nil {
		faults = append(faults, d.fleet.stop())
	}
	if d.client != nil {
		d.client.Close()
	}
	if d.tracing != nil {
		d.tracing.close(ctx)
	}
	if d.spans != nil {
		d.spans.close()
	}
	if d.stage != nil {
		faults = append(faults, d.stage.close(ctx))
	}
	return errors.Join(faults...)
}
