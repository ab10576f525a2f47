package gate

import (
	"context"
	"strconv"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/valkey-io/valkey-go"

	"github.com/effectonce/effectonce/internal/clock"
)

// Bounds of one round trip of the copier's: questions may share its connection,
// and should not wait behind much.
const (
	maxBatch      = 128
	maxBatchBytes = 256 << 10
)

// The scripts compare and change in one step on the server.
const (
	// publishScript: KEYS[1] the key; ARGV[1] the entry, ARGV[2] its end in Unix
	// ms by the server's clock. An entry begins with its order; whatever else
	// stands there gives way, of any type, and so does what would never end. It
	// returns the server's time in ms.
	publishScript = `local held = redis.pcall('GET', KEYS[1])
if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then return held end
local order = type(held) == 'string' and string.match(held, '^e1' .. string.rep('%x', 25))
if not order or order < string.sub(ARGV[1], 1, 27) or redis.call('PTTL', KEYS[1]) < 0 then
  redis.call('SET', KEYS[1], ARGV[1], 'PXAT', ARGV[2])
end
local now = redis.call('TIME')
return now[1] * 1000 + math.floor(now[2] / 1000)`
	// releaseScript: KEYS[1] the key; ARGV[1] the token.
	releaseScript = `if redis.pcall('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0`
)

// job is one command for the copier.
type job struct {
	kind   jobKind
	key    string
	value  string
	life   time.Duration
	queued time.Time
}

type jobKind int

const (
	mark jobKind = iota
	publish
	release
)

// enqueue hands a job to the copier, or drops it: the ledger has it all.
func (g *Gate) enqueue(j job) error {
	j.queued = clock.Now()
	j.key = g.config.Prefix + j.key
	err := g.offer(j)
	if err != nil {
		g.drop(1)
	}
	return err
}

func (g *Gate) offer(j job) error {
	if g.breaker.State() == gobreaker.StateOpen {
		return ErrOpen
	}
	g.mu.RLock() // the queue is closed under the lock
	defer g.mu.RUnlock()
	if g.closed {
		return errClosed
	}
	select {
	case g.queue <- j:
		return nil
	default:
		return errFull
	}
}

// copy sends jobs in the order in which they were queued, many in one round
// trip, until the gate is closed and the queue is drained.
func (g *Gate) copy() {
	defer g.running.Done()
	var batch []job
	for j := range g.queue {
		batch = g.fill(append(batch[:0], j))
		g.send(batch)
		clear(batch)
	}
}

// fill adds what is queued already.
func (g *Gate) fill(batch []job) []job {
	for size := len(batch[0].value); len(batch) < maxBatch && size < maxBatchBytes; {
		select {
		case j, ok := <-g.queue:
			if !ok {
				return batch
			}
			batch = append(batch, j)
			size += len(j.value)
		default:
			return batch
		}
	}
	return batch
}

// send drops the batch when Valkey is away: nothing depends on it.
func (g *Gate) send(batch []job) {
	report, err := g.allow()
	if err != nil {
		g.drop(len(batch))
		return
	}
	failed, err := g.try(batch)
	g.drop(failed)
	report(err)
	if err != nil {
		g.config.Logger.Debug("copies to the gate failed", "count", failed, "error", err)
	}
}

// try sends the batch; it returns how many jobs failed, and an error of theirs.
func (g *Gate) try(batch []job) (failed int, err error) {
	client, err := g.connect()
	if err != nil {
		return len(batch), err
	}
	commands := make([]valkey.Completed, len(batch))
	for i, j := range batch {
		commands[i] = j.command(client, g.clock.now())
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.config.commandTimeout())
	defer cancel()
	for i, r := range client.DoMulti(ctx, commands...) {
		switch e := r.Error(); {
		case e != nil && !valkey.IsValkeyNil(e):
			failed++
			err = e
		case batch[i].kind == publish:
			if now, e := r.AsInt64(); e == nil {
				g.clock.set(now)
			}
		}
	}
	return failed, err
}

// command says the job to the server, whose time is now. What has lived its life
// in the queue is sent all the same, to end at once: a round trip says something
// of the server.
func (j job) command(client valkey.Client, now int64) valkey.Completed {
	life := milliseconds(j.life - clock.Since(j.queued))
	switch j.kind {
	case mark:
		return client.B().Set().Key(j.key).Value(j.value).Nx().PxMilliseconds(life).Build()
	case publish:
		return client.B().Eval().Script(publishScript).Numkeys(1).Key(j.key).
			Arg(j.value, strconv.FormatInt(now+life, 10)).Build()
	default:
		return client.B().Eval().Script(releaseScript).Numkeys(1).Key(j.key).Arg(j.value).Build()
	}
}

// drop counts what is not sent.
func (g *Gate) drop(n int) {
	if n > 0 {
		g.dropped.Add(int64(n))
		g.meters.dropped.Add(context.Background(), int64(n))
	}
}

// Dropped returns how many marks, copies and releases were not sent, or not
// taken by the server.
func (g *Gate) Dropped() int64 { return g.dropped.Load() }
