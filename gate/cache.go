package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/effectonce/effectonce/internal/clock"
)

// Cache is what the runner needs of a gate. [Gate] is the real one.
type Cache interface {
	// Enter asks for the key in one round trip: it sets the token unless
	// something stands there, and answers with what does. An error means that
	// the gate could not answer; the caller goes on without it.
	Enter(ctx context.Context, name string, token Token, lease time.Duration) (Answer, error)
	// Mark sets the token off the caller's path, unless something stands there.
	Mark(name string, token Token, lease time.Duration)
	// Publish sets the entry off the caller's path, for at most life, in place of
	// a token or of a smaller entry.
	Publish(name string, entry Entry, life time.Duration)
	// Release takes the token away off the caller's path, if it is still there.
	Release(name string, token Token)
}

// Answer is what stood at the gate. The zero Answer: nothing, the token is set.
type Answer struct {
	// Token is another execution's; Left is what is left of its lease.
	Token *Token
	Left  time.Duration
	// Entry is a finished key's.
	Entry *Entry
}

// Why a gate could not answer.
var (
	// ErrOpen: the breaker is open, Valkey was not asked.
	ErrOpen = errors.New("gate: the breaker is open")
	// ErrTimeout: no answer in time.
	ErrTimeout = errors.New("gate: no answer in time")

	errNotConnected = errors.New("gate: not connected yet")
)

// Enter implements [Cache].
func (g *Gate) Enter(ctx context.Context, name string, token Token, lease time.Duration) (Answer, error) {
	done, err := g.breaker.Allow()
	if err != nil {
		return Answer{}, ErrOpen
	}
	client := g.client.Load()
	if client == nil {
		go func() {
			_, err := g.dial()
			done(err == nil)
		}()
		return Answer{}, errNotConnected
	}
	answer, err := g.enter(ctx, *client, g.config.Prefix+name, token, lease)
	switch {
	case err == nil:
		done(true)
	case ctx.Err() != nil:
		done(true) // the caller has gone: nothing is said about Valkey
		return Answer{}, ctx.Err()
	case errors.Is(err, errForeign):
		done(true)
	default:
		done(false)
		if errors.Is(err, context.DeadlineExceeded) {
			err = ErrTimeout
		}
	}
	return answer, err
}

func (g *Gate) enter(ctx context.Context, client valkey.Client, key string, token Token, lease time.Duration) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, g.config.Timeout)
	defer cancel()
	replies := client.DoMulti(ctx,
		client.B().Set().Key(key).Value(token.encode()).Nx().Get().PxMilliseconds(milliseconds(lease)).Build(),
		client.B().Pttl().Key(key).Build(),
	)
	held, err := replies[0].AsBytes()
	if valkey.IsValkeyNil(err) {
		return Answer{}, nil
	}
	if err != nil {
		return Answer{}, fmt.Errorf("gate: enter: %w", err)
	}
	other, entry, err := decode(held)
	if err != nil {
		return Answer{}, err
	}
	if entry != nil {
		return Answer{Entry: entry}, nil
	}
	if *other == token {
		return Answer{}, nil
	}
	left, err := replies[1].AsInt64()
	if err != nil {
		return Answer{}, fmt.Errorf("gate: enter: %w", err)
	}
	return Answer{Token: other, Left: time.Duration(max(left, 0)) * time.Millisecond}, nil
}

// milliseconds is a life for PX, which must be positive.
func milliseconds(d time.Duration) int64 { return max(d.Milliseconds(), 1) }

// The scripts compare and change in one step on the server.
const (
	// publishScript: KEYS[1] the key; ARGV[1] the entry, ARGV[2] its life in ms.
	// The order of two entries stands in characters 3 to 27.
	publishScript = `local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, 2) == 'e1' and string.sub(held, 3, 27) >= string.sub(ARGV[1], 3, 27) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1`
	// releaseScript: KEYS[1] the key; ARGV[1] the token.
	releaseScript = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
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

// Mark implements [Cache].
func (g *Gate) Mark(name string, token Token, lease time.Duration) {
	g.enqueue(job{kind: mark, key: name, value: token.encode(), life: lease})
}

// Publish implements [Cache].
func (g *Gate) Publish(name string, entry Entry, life time.Duration) {
	if len(entry.Outcome.Data) > g.config.MaxEntryBytes {
		return
	}
	g.enqueue(job{kind: publish, key: name, value: entry.encode(), life: life})
}

// Release implements [Cache].
func (g *Gate) Release(name string, token Token) {
	g.enqueue(job{kind: release, key: name, value: token.encode()})
}

// enqueue hands a job to the copier, or drops it: the ledger has it all.
func (g *Gate) enqueue(j job) {
	j.queued = clock.Now()
	j.key = g.config.Prefix + j.key
	select {
	case <-g.stop:
	case g.queue <- j:
	default:
		g.dropped.Add(1)
	}
}
