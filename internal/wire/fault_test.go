package wire_test

import (
	"context"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/wire"
)

// committing are the ways to end a transaction that has inserted a row.
func committing() map[string]func(*bench, context.Context, *pgx.Conn) error {
	return map[string]func(*bench, context.Context, *pgx.Conn) error{
		"alone": func(b *bench, ctx context.Context, conn *pgx.Conn) error {
			return b.insert(conn).Commit(ctx)
		},
		"in a pipeline": func(b *bench, ctx context.Context, conn *pgx.Conn) error {
			if err := batch(ctx, conn, "begin"); err != nil {
				return err
			}
			return batch(ctx, conn, "INSERT INTO t VALUES (1)", "commit")
		},
	}
}

// everyCommit runs a test for every way and mode of committing.
func everyCommit(t *testing.T, test func(t *testing.T, b *bench, conn *pgx.Conn, commit func(context.Context) error)) {
	for _, m := range modes() {
		for name, commit := range committing() {
			t.Run(m.String()+" "+name, func(t *testing.T) {
				t.Parallel()
				b := newBench(t)
				conn := b.connect(mode(m))
				require.NoError(t, commit(b, t.Context(), conn)) // warms the cache
				_, err := b.direct.Exec(t.Context(), "TRUNCATE t")
				require.NoError(t, err)
				test(t, b, conn, func(ctx context.Context) error { return commit(b, ctx, conn) })
			})
		}
	}
}

// lost asserts that the connection is lost: no answer of PostgreSQL's.
func lost(t *testing.T, err error) {
	t.Helper()
	require.Error(t, err)
	var failure *pgconn.PgError
	assert.NotErrorAs(t, err, &failure)
}

func TestCutAfterCommit(t *testing.T) {
	t.Parallel()
	everyCommit(t, func(t *testing.T, b *bench, conn *pgx.Conn, commit func(context.Context) error) {
		rule := b.Arm(wire.Rule{Match: wire.Commit(), Action: wire.CutAfter})
		lost(t, commit(t.Context()))
		comes(t, rule.Fired())
		comes(t, rule.Settled())
		assert.Equal(t, 1, b.rows())
		assert.True(t, conn.IsClosed())
	})
}

func TestCutBeforeCommit(t *testing.T) {
	t.Parallel()
	everyCommit(t, func(t *testing.T, b *bench, conn *pgx.Conn, commit func(context.Context) error) {
		b.ResetStats()
		b.Record(true)
		rule := b.Arm(wire.Rule{Match: wire.Commit(), Action: wire.CutBefore})
		lost(t, commit(t.Context()))
		comes(t, rule.Fired())
		comes(t, rule.Settled())
		assert.Zero(t, b.rows())
		assert.True(t, conn.IsClosed())
		assert.NotContains(t, b.Stats().Statements, "commit")
		assert.Empty(t, b.Conns())
	})
}

func TestCutClientHoldServer(t *testing.T) {
	t.Parallel()
	everyCommit(t, func(t *testing.T, b *bench, _ *pgx.Conn, commit func(context.Context) error) {
		rule := b.Arm(wire.Rule{Match: wire.Commit(), Action: wire.CutClientHoldServer})
		lost(t, commit(t.Context()))
		comes(t, rule.Fired())
		assert.Zero(t, b.rows())
		pending(t, rule.Settled())
		rule.Release()
		comes(t, rule.Settled())
		assert.Equal(t, 1, b.rows())
	})
}

func TestHoldServer(t *testing.T) {
	t.Parallel()
	everyCommit(t, func(t *testing.T, b *bench, _ *pgx.Conn, commit func(context.Context) error) {
		rule := b.Arm(wire.Rule{Match: wire.Commit(), Action: wire.HoldServer})
		done := async(func() error { return commit(t.Context()) })
		comes(t, rule.Fired())
		comes(t, rule.Settled())
		assert.Equal(t, 1, b.rows())
		pending(t, done)
		rule.Release()
		require.NoError(t, comes(t, done))
	})
}

func TestHoldClient(t *testing.T) {
	t.Parallel()
	everyCommit(t, func(t *testing.T, b *bench, _ *pgx.Conn, commit func(context.Context) error) {
		rule := b.Arm(wire.Rule{Match: wire.Commit(), Action: wire.HoldClient})
		done := async(func() error { return commit(t.Context()) })
		comes(t, rule.Fired())
		assert.Zero(t, b.rows())
		pending(t, done)
		pending(t, rule.Settled())
		rule.Release()
		require.NoError(t, comes(t, done))
		comes(t, rule.Settled())
		assert.Equal(t, 1, b.rows())
	})
}

func TestHoldClientDeliversThoughTheClientIsGone(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tx := b.insert(b.connect())
	rule := b.Arm(wire.Rule{Match: wire.Commit(), Action: wire.HoldClient})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := async(func() error { return tx.Commit(ctx) })
	comes(t, rule.Fired())
	cancel()
	lost(t, comes(t, done))
	assert.Zero(t, b.rows())
	rule.Release()
	comes(t, rule.Settled())
	assert.Equal(t, 1, b.rows())
}

func TestFaultsAtTheServersCommit(t *testing.T) {
	t.Parallel()
	for name, action := range map[string]wire.Action{
		"CutBefore": wire.CutBefore, "CutClientHoldServer": wire.CutClientHoldServer, "Reset": wire.Reset,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			tx := b.insert(b.connect())
			rule := b.Arm(wire.Rule{Match: wire.Tag("COMMIT"), Action: action})
			lost(t, tx.Commit(t.Context()))
			comes(t, rule.Fired())
			comes(t, rule.Settled())
			assert.Equal(t, 1, b.rows())
		})
	}
	t.Run("HoldServer", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		tx := b.insert(b.connect())
		rule := b.Arm(wire.Rule{Match: wire.AnswerTo(wire.Commit()), Action: wire.HoldServer})
		done := async(func() error { return tx.Commit(t.Context()) })
		comes(t, rule.Fired())
		assert.Equal(t, 1, b.rows())
		pending(t, done)
		rule.Release()
		require.NoError(t, comes(t, done))
	})
	t.Run("CutAfter", func(t *testing.T) {
		t.Parallel()
		b := newBench(t)
		conn := b.connect()
		tx := b.insert(conn)
		rule := b.Arm(wire.Rule{Match: wire.Tag("COMMIT"), Action: wire.CutAfter})
		require.NoError(t, tx.Commit(t.Context()))
		comes(t, rule.Fired())
		lost(t, conn.Ping(t.Context()))
	})
}

func TestResetIsSeenAsOne(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]wire.Rule{
		"action":           {Match: wire.HasPrefix("SELECT"), Action: wire.Reset},
		"cut by a reset":   {Match: wire.Contains("select"), Action: wire.CutBefore, RST: true},
		"reset and answer": {Match: wire.SQL(func(sql string) bool { return sql == "SELECT 1" }), Action: wire.CutAfter, RST: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			conn := b.connect()
			b.Arm(rule)
			_, err := conn.Exec(t.Context(), "SELECT 1")
			require.ErrorIs(t, err, syscall.ECONNRESET)
		})
	}
}

func TestRuleIsLimited(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	one, other := b.connect(app("one")), b.connect(app("other"))
	conns := b.Conns()
	require.Len(t, conns, 2)
	assert.Equal(t, []string{"one", "other"}, []string{conns[0].App, conns[1].App})
	rule := b.Arm(wire.Rule{Match: wire.HasPrefix("select"), App: "other", Times: 2})
	_, err := one.Exec(t.Context(), "SELECT 1")
	require.NoError(t, err)
	pending(t, rule.Fired())
	for range 3 {
		_, err = other.Exec(t.Context(), "SELECT 1")
		require.NoError(t, err)
	}
	comes(t, rule.Fired())
	comes(t, rule.Fired())
	pending(t, rule.Fired())

	always := b.Arm(wire.Rule{Match: wire.HasPrefix("select"), Times: -1, Action: wire.CutBefore})
	always.Disarm()
	require.NoError(t, one.Ping(t.Context()))
	b.Cut("other")
	require.Error(t, other.Ping(t.Context()))
	require.NoError(t, one.Ping(t.Context()))
}

func TestConnectionIsCutAtItsStart(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.Arm(wire.Rule{Match: wire.Connected(), App: "one", Action: wire.CutBefore})
	config, err := pgx.ParseConfig(b.dsn)
	require.NoError(t, err)
	app("one")(config)
	_, err = pgx.ConnectConfig(t.Context(), config)
	require.Error(t, err)
	b.connect(app("one"))
	b.connect(app("other"))
}
