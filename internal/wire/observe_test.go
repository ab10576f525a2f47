package wire_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/wire"
)

func TestCommitIsObservedBeforeTheClientHearsOfIt(t *testing.T) {
	t.Parallel()
	everyCommit(t, func(t *testing.T, b *bench, _ *pgx.Conn, commit func(context.Context) error) {
		seen, goOn := make(chan wire.Event), make(chan struct{})
		b.Observe(func(e *wire.Event) {
			if wire.Tag("COMMIT")(e) {
				seen <- *e
				<-goOn
			}
		})
		done := async(func() error { return commit(t.Context()) })
		e := comes(t, seen)
		assert.Equal(t, "commit", e.SQL)
		assert.Equal(t, 1, b.rows())
		pending(t, done)
		close(goOn)
		require.NoError(t, comes(t, done))
	})
}

func TestObserverDropsTheAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tx, other := b.insert(b.connect()), b.connect()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rule := b.Arm(wire.Rule{Match: wire.Commit()})
	stop := b.Observe(func(e *wire.Event) {
		if wire.Tag("COMMIT")(e) {
			e.Drop()
		}
	})
	done := async(func() error { return tx.Commit(ctx) })
	comes(t, rule.Settled())
	assert.Equal(t, 1, b.rows())
	require.NoError(t, other.Ping(t.Context()), "other connections work")
	pending(t, done)
	cancel()
	require.ErrorIs(t, comes(t, done), context.Canceled)
	stop()
	require.NoError(t, b.insert(b.connect()).Commit(t.Context()))
}

func TestObserverCuts(t *testing.T) {
	t.Parallel()
	for name, match := range map[string]wire.Match{"statement": wire.Commit(), "answer": wire.Tag("COMMIT")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			tx := b.insert(b.connect())
			b.Observe(func(e *wire.Event) {
				if match(e) {
					e.Cut()
				}
			})
			lost(t, tx.Commit(t.Context()))
		})
	}
}

func TestStatementIsDropped(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tx := b.insert(b.connect())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rule := b.Arm(wire.Rule{Match: wire.Commit(), Do: func(e *wire.Event) {
		e.Drop()
		cancel()
	}})
	require.ErrorIs(t, tx.Commit(ctx), context.Canceled)
	comes(t, rule.Settled())
	assert.Zero(t, b.rows())
}

func TestEventsComeInOrder(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn := b.connect(app("worker"))
	events := make(chan wire.Event, 100)
	b.Observe(func(e *wire.Event) { events <- *e })
	require.NoError(t, b.insert(conn).Commit(t.Context()))
	_, err := conn.Exec(t.Context(), "SELECT 1/0")
	require.Error(t, err)
	require.NoError(t, b.connect(app("second")).Ping(t.Context()))
	close(events)
	type line struct {
		kind           wire.Kind
		sql, tag, code string
	}
	var got []line
	var last uint64
	for e := range events {
		assert.Greater(t, e.Seq, last)
		assert.False(t, e.Time.IsZero())
		last = e.Seq
		got = append(got, line{e.Kind, e.SQL, e.Tag, e.Code})
		if len(got) < 9 {
			assert.Equal(t, "worker", e.App)
		}
	}
	insert := "INSERT INTO t VALUES ($1)"
	assert.Equal(t, []line{
		{wire.KindStatement, "begin", "", ""},
		{wire.KindAnswer, "begin", "BEGIN", ""},
		{wire.KindStatement, insert, "", ""},
		{wire.KindAnswer, insert, "INSERT 0 1", ""},
		{wire.KindStatement, "commit", "", ""},
		{wire.KindAnswer, "commit", "COMMIT", ""},
		{wire.KindStatement, "SELECT 1/0", "", ""},
		{wire.KindAnswer, "SELECT 1/0", "", "22012"},
		{wire.KindConnect, "", "", ""},
		{wire.KindStatement, "-- ping", "", ""},
		{wire.KindAnswer, "-- ping", "", ""},
	}, got)
}
