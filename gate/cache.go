package gate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sony/gobreaker/v2"
	"github.com/valkey-io/valkey-go"
	"go.opentelemetry.io/otel/trace"

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
	// a token or of a smaller entry. An error says that it will not.
	Publish(name string, entry Entry, life time.Duration) error
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

// Why a gate could not answer, or doesn't copy.
var (
	// ErrOpen: the breaker is open, Valkey was not asked.
	ErrOpen = errors.New("gate: the breaker is open")
	// ErrTimeout: no answer in time.
	ErrTimeout = errors.New("gate: no answer in time")
	// ErrTooLarge: the entry is over Config.MaxEntryBytes.
	ErrTooLarge = errors.New("gate: the entry is too large to be copied")

	errFull = errors.New("gate: the queue of copies is full")
)

// Enter implements [Cache]. The question runs beside the caller, who leaves it
// at Config.Timeout or when the context ends: a caller in a hurry neither breaks
// the connection that others use nor speaks against the server.
func (g *Gate) Enter(ctx context.Context, name string, token Token, lease time.Duration) (Answer, error) {
	if err := ctx.Err(); err != nil {
		return Answer{}, err
	}
	began, before := clock.Now(), g.breaker.State()
	report, err := g.allow()
	if err != nil {
		return Answer{}, err
	}
	type reply struct {
		Answer
		err error
	}
	asked := make(chan reply, 1)
	if !g.spawn(func() { //nolint:contextcheck // what it connects serves every caller, and ends with none of them
		answer, err := g.ask(g.config.Prefix+name, token, lease)
		report(err)
		asked <- reply{answer, err}
	}) {
		return Answer{}, errClosed
	}
	timed, cancel := context.WithTimeout(ctx, g.config.Timeout)
	defer cancel()
	var r reply
	select {
	case r = <-asked:
	case <-timed.Done():
		if err := ctx.Err(); err != nil {
			return Answer{}, err
		}
		r.err = ErrTimeout
		report(r.err)
	}
	switch after := g.breaker.State(); {
	case before == gobreaker.StateClosed && after == gobreaker.StateOpen:
		trace.SpanFromContext(ctx).AddEvent(eventOpened)
	case before == gobreaker.StateHalfOpen && after == gobreaker.StateClosed:
		trace.SpanFromContext(ctx).AddEvent(eventClosed)
	}
	g.meters.answered(ctx, r.Answer, r.err, clock.Since(began))
	return r.Answer, r.err
}

// ask is Enter's round trip.
func (g *Gate) ask(key string, token Token, lease time.Duration) (Answer, error) {
	client, err := g.connect()
	if err != nil {
		return Answer{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), g.config.commandTimeout())
	defer cancel()
	replies := client.DoMulti(ctx,
		client.B().Set().Key(key).Value(token.encode()).Nx().Get().PxMilliseconds(milliseconds(lease)).Build(),
		client.B().Pttl().Key(key).Build(),
	)
	held, err := replies[0].AsBytes()
	if valkey.IsValkeyNil(err) {
		return Answer{}, nil
	}
	if refusal, ok := valkey.IsValkeyErr(err); ok && strings.HasPrefix(refusal.Error(), "WRONGTYPE ") {
		return Answer{}, fmt.Errorf("%w: %w", errForeign, err)
	}
	if err != nil {
		return Answer{}, fmt.Errorf("gate: enter: %w", err)
	}
	left, err := replies[1].AsInt64()
	if err != nil {
		return Answer{}, fmt.Errorf("gate: enter: %w", err)
	}
	other, entry, err := decode(held)
	switch {
	case err != nil:
		return Answer{}, err
	case left == withoutEnd:
		return Answer{}, errForeign // ours always end: it would bar, or be replayed, for ever
	case entry != nil:
		return Answer{Entry: entry}, nil
	case *other == token:
		return Answer{}, nil
	default:
		return Answer{Token: other, Left: time.Duration(max(left, 0)) * time.Millisecond}, nil
	}
}

// withoutEnd is PTTL's answer for a key that never ends.
const withoutEnd = -1

// milliseconds is a life for PX, which must be positive.
func milliseconds(d time.Duration) int64 { return max(d.Milliseconds(), 1) }

// Mark implements [Cache].
func (g *Gate) Mark(name string, token Token, lease time.Duration) {
	_ = g.enqueue(job{kind: mark, key: name, value: token.encode(), life: lease})
}

// Publish implements [Cache].
func (g *Gate) Publish(name string, entry Entry, life time.Duration) error {
	if len(entry.Outcome.Data) > g.config.MaxEntryBytes {
		return ErrTooLarge
	}
	return g.enqueue(job{kind: publish, key: name, value: entry.encode(), life: life})
}

// Release implements [Cache].
func (g *Gate) Release(name string, token Token) {
	_ = g.enqueue(job{kind: release, key: name, value: token.encode()})
}
