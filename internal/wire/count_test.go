package wire_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTransactionIsThreeRoundTrips(t *testing.T) {
	t.Parallel()
	for _, m := range modes() {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			conn := b.connect(mode(m))
			require.NoError(t, b.insert(conn).Commit(t.Context())) // warms the cache
			b.ResetStats()
			b.Record(true)
			require.NoError(t, b.insert(conn).Commit(t.Context()))
			stats := b.Stats()
			assert.Equal(t, 3, stats.RoundTrips)
			assert.Equal(t, 3, stats.Executed)
			assert.Zero(t, stats.Connections)
			require.Len(t, stats.Statements, 3)
			assert.Equal(t, "begin", stats.Statements[0])
			assert.True(t, strings.HasPrefix(stats.Statements[1], "INSERT INTO t"))
			assert.Equal(t, "commit", stats.Statements[2])
		})
	}
}

func TestPipelineIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	for _, m := range modes() {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			conn := b.connect(mode(m))
			run := func() {
				require.NoError(t, batch(t.Context(), conn, "begin", "INSERT INTO t VALUES (1)"))
				require.NoError(t, batch(t.Context(), conn, "INSERT INTO t VALUES (1)", "commit"))
			}
			run()
			b.ResetStats()
			b.Record(true)
			run()
			stats := b.Stats()
			assert.Equal(t, 2, stats.RoundTrips)
			assert.Equal(t, []string{"begin", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (1)", "commit"}, stats.Statements)
			assert.Equal(t, 4, b.rows())
		})
	}
}

func TestColdStatementCostsARoundTripMore(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn := b.connect()
	assert.Zero(t, b.Stats().RoundTrips, "the start of a connection isn't counted")
	_, err := conn.Exec(t.Context(), "INSERT INTO t VALUES ($1)", 1)
	require.NoError(t, err)
	stats := b.Stats()
	assert.Equal(t, 2, stats.RoundTrips)
	assert.Equal(t, 1, stats.Executed, "a statement that is only parsed isn't executed")
	assert.Equal(t, 1, stats.Connections)
}

func TestCopyIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn := b.connect()
	data := strings.Repeat("1\n", 200_000) // several reads
	_, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader(data), "COPY t FROM STDIN")
	require.NoError(t, err)
	assert.Equal(t, 1, b.Stats().RoundTrips)
	assert.Equal(t, 200_000, b.rows())
}

func TestErrorEndsARoundTrip(t *testing.T) {
	t.Parallel()
	// Where it caches, pgx describes a failed statement again.
	for _, m := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(m.String(), func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			conn := b.connect(mode(m))
			statements := []string{"begin", "SELECT 1/(SELECT count(*) FROM t)", "SELECT 2"}
			var failure *pgconn.PgError
			require.ErrorAs(t, batch(t.Context(), conn, statements...), &failure)
			assert.Equal(t, "22012", failure.Code)
			_, err := conn.Exec(t.Context(), "rollback")
			require.NoError(t, err)
			assert.Equal(t, 2, b.Stats().RoundTrips)
		})
	}
}

func TestLargeMessagesPass(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn := b.connect(mode(pgx.QueryExecModeExec))
	text := strings.Repeat("x", 3<<20)
	var back string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT $1::text", text).Scan(&back))
	assert.Len(t, back, len(text))
	assert.Equal(t, 1, b.Stats().RoundTrips)
}

func TestPipelineOfSyncsIsFollowed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn := b.connect()
	pipeline := conn.PgConn().StartPipeline(t.Context())
	for range 3 {
		pipeline.SendQueryParams("SELECT 1", nil, nil, nil, nil)
		require.NoError(t, pipeline.Sync())
	}
	require.NoError(t, pipeline.Close())
	assert.Equal(t, 3, b.Stats().Executed)
}

func TestCancelRequestPasses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	conn := b.connect()
	done := async(func() error {
		_, err := conn.Exec(t.Context(), "SELECT pg_sleep(3600)")
		return err
	})
	for cancelled := false; !cancelled; {
		require.NoError(t, conn.PgConn().CancelRequest(t.Context())) // too early, it does nothing
		select {
		case err := <-done:
			var failure *pgconn.PgError
			require.ErrorAs(t, err, &failure)
			assert.Equal(t, "57014", failure.Code)
			cancelled = true
		default:
		}
	}
	stats := b.Stats()
	assert.Positive(t, stats.Cancels)
	assert.Equal(t, 1, stats.Connections)
}
