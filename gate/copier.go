package gate

import (
	"context"
	"strconv"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/effectonce/effectonce/internal/clock"
)

// Bounds of the copier's work.
const (
	maxBatch    = 128
	copyTimeout = time.Second
)

// copy sends jobs in the order in which they were queued, many in one round
// trip, until the gate is closed; then it drains what is left.
func (g *Gate) copy() {
	defer close(g.stopped)
	batch := make([]job, 0, maxBatch)
	for {
		select {
		case j := <-g.queue:
			g.send(g.fill(append(batch[:0], j)))
		case <-g.stop:
			for {
				rest := g.fill(batch[:0])
				if len(rest) == 0 {
					return
				}
				g.send(rest)
			}
		}
	}
}

// fill adds what is queued already.
func (g *Gate) fill(batch []job) []job {
	for len(batch) < maxBatch {
		select {
		case j := <-g.queue:
			batch = append(batch, j)
		default:
			return batch
		}
	}
	return batch
}

// send drops the batch when Valkey is away: nothing depends on it.
func (g *Gate) send(batch []job) {
	done, err := g.breaker.Allow()
	if err != nil {
		g.dropped.Add(int64(len(batch)))
		return
	}
	client, err := g.dial()
	if err != nil {
		done(false)
		g.dropped.Add(int64(len(batch)))
		return
	}
	commands := make([]valkey.Completed, 0, len(batch))
	for _, j := range batch {
		if c, ok := j.command(client); ok {
			commands = append(commands, c)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), copyTimeout)
	defer cancel()
	failed := 0
	for _, r := range client.DoMulti(ctx, commands...) {
		if err := r.Error(); err != nil && !valkey.IsValkeyNil(err) {
			failed++
			g.failure(err)
		}
	}
	g.dropped.Add(int64(failed))
	done(failed == 0)
}

func (j job) command(client valkey.Client) (valkey.Completed, bool) {
	life := j.life - clock.Since(j.queued)
	switch j.kind {
	case mark:
		return client.B().Set().Key(j.key).Value(j.value).Nx().PxMilliseconds(milliseconds(life)).Build(), life > 0
	case publish:
		return client.B().Eval().Script(publishScript).Numkeys(1).Key(j.key).
			Arg(j.value, strconv.FormatInt(milliseconds(life), 10)).Build(), life > 0
	default:
		return client.B().Eval().Script(releaseScript).Numkeys(1).Key(j.key).Arg(j.value).Build(), true
	}
}

// Dropped returns how many marks, copies and releases were not sent.
func (g *Gate) Dropped() int64 { return g.dropped.Load() }

func (g *Gate) failure(err error) {
	g.config.Logger.Debug("copy to the gate failed", "error", err)
}
