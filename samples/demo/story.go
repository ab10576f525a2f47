package main

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/effectonce/effectonce/internal/wire"
)

// story is what happens. Each moment is chosen from outside, on the wire: the
// workers know nothing of it.
func (d *demo) story(ctx context.Context) error {
	for _, act := range []func(context.Context) error{d.unprotected, d.afterCommit, d.afterCopy, d.withoutValkey, d.valkeyIsBack} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return d.fleet.stop()
}

// unprotected: a worker dies after a COMMIT, and there is no plugin.
func (d *demo) unprotected(ctx context.Context) error {
	d.title("Without the plugin")
	if err := d.hire(ctx, without); err != nil {
		return err
	}
	d.say("%d workers, %d transfers", workers, crowd)
	d.killAtCommit(ctx, 10, without)
	if err := d.round(ctx, without, crowd); err != nil {
		return err
	}
	twice, err := d.effects(ctx, without)
	if err != nil {
		return err
	}
	d.say("all are done, and %d happened twice, %s for one:", twice.doubled, twice.example)
	d.more("%d were to be moved, and %d have been", crowd*amount, twice.rows*amount)
	return nil
}

// afterCommit is the same with the plugin.
func (d *demo) afterCommit(ctx context.Context) error {
	d.title("With the plugin")
	if err := d.hire(ctx, with); err != nil {
		return err
	}
	d.say("%d new workers, %d transfers", workers, crowd)
	d.killAtCommit(ctx, 10, with)
	return d.finish(ctx, crowd)
}

// afterCopy: a worker dies when its result is in Valkey, and Temporal has not
// heard of it. The workers are new: what the first one to commit copies next
// was committed after its link was cut.
func (d *demo) afterCopy(ctx context.Context) error {
	d.title("With the plugin: the worker dies after the copy to Valkey")
	if err := d.fleet.replace(ctx, workers); err != nil {
		return err
	}
	d.say("%d new workers, %d transfers", workers, crowd)
	var victim atomic.Pointer[string]
	is := func(name string) bool { v := victim.Load(); return v != nil && *v == name }
	cut := d.pg.Arm(wire.Rule{Match: d.committed, Times: -1, Do: func(e *wire.Event) {
		victim.CompareAndSwap(nil, &e.App)
		if is(e.App) {
			d.fleet.isolate(e.App)
		}
	}})
	defer cut.Disarm()
	copied := d.resp.Arm(wire.Rule{
		Match:  func(e *wire.Event) bool { return is(e.App) && d.copied(e) },
		Action: wire.CutBefore,
		Do: func(e *wire.Event) {
			d.kill(ctx, e.App, with, "its result was in Valkey, and its link to Temporal dead")
		},
	})
	defer copied.Disarm()
	return d.finish(ctx, crowd)
}

// withoutValkey: Valkey dies in the midst of it, then a worker too.
func (d *demo) withoutValkey(ctx context.Context) error {
	d.title("With the plugin: Valkey dies")
	d.say("%d transfers", crowd)
	var fault error
	died := d.pg.Arm(wire.Rule{Match: nth(5, d.committed), Do: func(*wire.Event) { //nolint:contextcheck // a kill waits for the kernel alone
		fault = d.killValkey()
		d.say("Valkey %s", d.death())
	}})
	defer died.Disarm()
	d.killAtCommit(ctx, 15, with)
	if err := d.finish(ctx, crowd); err != nil {
		return err
	}
	<-died.Fired()
	return fault
}

func (d *demo) death() string {
	if d.valkey.Owned() {
		return "killed"
	}
	return "is yours: cut off from the workers"
}

// valkeyIsBack: the work goes on until a result is copied again.
func (d *demo) valkeyIsBack(ctx context.Context) error {
	d.title("With the plugin: Valkey is back")
	copied := d.resp.Arm(wire.Rule{Match: d.copied})
	defer copied.Disarm()
	if err := d.reviveValkey(ctx); err != nil {
		return err
	}
	d.say("it is up again, and empty")
	for count := workers; ; count += workers {
		if err := d.round(ctx, with, workers); err != nil {
			return err
		}
		select {
		case <-copied.Fired():
			d.say("%d transfers later it has a result again", count)
			return d.finish(ctx, crowd)
		default:
		}
	}
}

// finish makes a round's transfers and says how they went.
func (d *demo) finish(ctx context.Context, count int) error {
	if err := d.round(ctx, with, count); err != nil {
		return err
	}
	all, err := d.effects(ctx, with)
	if err != nil {
		return err
	}
	d.say("all are done: %d happened twice, %d are lost", all.doubled, d.started[with]-all.transfers)
	return nil
}

// killAtCommit kills whichever worker's COMMIT is the nth that PostgreSQL
// answers, before the answer reaches the worker.
func (d *demo) killAtCommit(ctx context.Context, n int32, half string) {
	d.pg.Arm(wire.Rule{Match: nth(n, d.committed), Action: wire.CutBefore, Do: func(e *wire.Event) {
		d.kill(ctx, e.App, half, "PostgreSQL had answered its COMMIT, Temporal knew nothing")
	}})
}

// kill runs while the proxy holds the message that chose the moment.
func (d *demo) kill(ctx context.Context, worker, half, when string) {
	if pid := d.fleet.kill(ctx, worker); pid != 0 {
		d.say("%s, process %d, killed:", worker, pid)
		d.more("%s", when)
		d.remember(half, worker)
	}
}

// committed matches PostgreSQL's answer to a worker's COMMIT.
func (d *demo) committed(e *wire.Event) bool {
	return wire.Tag("COMMIT")(e) && strings.HasPrefix(e.App, "worker-")
}

// copied matches Valkey's answer to a worker that has copied a result there.
func (d *demo) copied(e *wire.Event) bool {
	prefix := d.id + ":"
	return wire.AnswerTo(wire.Command("EVAL", prefix))(e) && e.Code == "" && !strings.HasPrefix(e.Key, prefix+"start/")
}

// nth matches one message of those that match.
func nth(n int32, match wire.Match) wire.Match {
	var seen atomic.Int32
	return func(e *wire.Event) bool { return match(e) && seen.Add(1) == n }
}
