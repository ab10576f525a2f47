package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

var (
	errBody      = errors.New("the body's own error")
	errPermanent = errors.New("a permanent one")
)

// records makes errors permanent or retryable by their identity.
func records(req ledger.Request) ledger.Request {
	req.Failure = func(err error) ledger.Failure {
		status := ledger.FailedRetryable
		if errors.Is(err, errPermanent) {
			status = ledger.FailedPermanent
		}
		return ledger.Failure{Status: status, Outcome: outcome(err.Error())}
	}
	return req
}

func failsAfter(name string, err error) ledger.Body {
	return func(ctx context.Context) (ledger.Outcome, error) {
		if err := ledgertest.Effect(ctx, name); err != nil {
			return ledger.Outcome{}, err
		}
		return ledger.Outcome{}, err
	}
}

func TestRetryableFailureIsRolledBackCountedAndRunAgain(t *testing.T) {
	t.Parallel()
	for name, req := range requests("a") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			req := records(req)
			for attempt := int32(1); attempt <= 3; attempt++ {
				_, err := b.execute(t, req, failsAfter("a", errBody))
				require.Same(t, errBody, err)
				row, ok := b.row(t, req)
				require.True(t, ok)
				require.Equal(t, ledger.FailedRetryable, row.Status)
				require.Equal(t, attempt, row.Attempt)
			}
			require.Zero(t, b.effects(t, "a"))
			r, err := b.execute(t, req, writes("a"))
			require.NoError(t, err)
			require.Equal(t, ledger.Executed, r.Source)
			require.Equal(t, int32(4), r.Attempt)
			require.Equal(t, 1, b.effects(t, "a"))
		})
	}
}

func TestPermanentFailureIsReplayedOrRunAgain(t *testing.T) {
	t.Parallel()
	for name, req := range requests("a") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			req := records(req)
			_, err := b.execute(t, req, failsAfter("a", errPermanent))
			require.Same(t, errPermanent, err)

			r, err := b.execute(t, req, writes("a"))
			require.NoError(t, err)
			require.Equal(t, ledger.LedgerReplay, r.Source)
			require.Equal(t, ledger.FailedPermanent, r.Status)
			require.Equal(t, outcome(errPermanent.Error()), r.Outcome)
			require.Zero(t, b.effects(t, "a"))

			req.RerunPermanent = true
			r, err = b.execute(t, req, writes("a"))
			require.NoError(t, err)
			require.Equal(t, ledger.Executed, r.Source)
			require.Equal(t, int32(2), r.Attempt)
			require.Equal(t, 1, b.effects(t, "a"))
		})
	}
}

func TestPermanentFailureOfABodyThatNeverAskedIsReplayed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := records(request("a"))
	_, err := b.execute(t, req, func(context.Context) (ledger.Outcome, error) { return ledger.Outcome{}, errPermanent })
	require.Same(t, errPermanent, err)
	r, err := b.execute(t, req, never(t))
	require.NoError(t, err)
	require.Equal(t, ledger.FailedPermanent, r.Status)
}

func TestNothingIsRecordedOfWhatSaysNothing(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]error{
		"serialization failure": fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: "40001"}),
		"deadlock":              &pgconn.PgError{Code: "40P01"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			_, err := b.execute(t, records(request("a")), failsAfter("a", fail))
			require.Equal(t, fail, err)
			_, ok := b.row(t, request("a"))
			require.False(t, ok)
			r, err := b.execute(t, records(request("a")), writes("a"))
			require.NoError(t, err)
			require.Equal(t, ledger.Executed, r.Source)
		})
	}
	t.Run("the attempt has ended", func(t *testing.T) {
		t.Parallel()
		b := setup(t)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := b.store.Execute(ctx, records(request("a")), func(ctx context.Context) (ledger.Outcome, error) {
			err := ledgertest.Effect(ctx, "a")
			cancel()
			return ledger.Outcome{}, errors.Join(err, errPermanent)
		})
		require.ErrorIs(t, err, errPermanent)
		_, ok := b.row(t, request("a"))
		require.False(t, ok)
		require.Zero(t, b.effects(t, "a"))
	})
}

func TestAFailureIsNeverRecordedOverAnothersRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	req := records(request("a"))
	b.leased(t, req, -1) // abandoned
	_, err := b.execute(t, req, func(ctx context.Context) (ledger.Outcome, error) {
		if err := ledgertest.Effect(ctx, "a"); err != nil {
			return ledger.Outcome{}, err
		}
		// The connection of this claim dies; another takes the key over and finishes.
		x, _ := ledger.Tx(ctx)
		_, err := b.pool.Exec(ctx, "SELECT pg_terminate_backend($1)", x.Conn().PgConn().PID())
		assert.NoError(t, err)
		again := req
		again.Wait = 0
		r, err := b.store.Execute(ctx, again, writes("b"))
		assert.NoError(t, err)
		assert.Equal(t, ledger.Executed, r.Source)
		return ledger.Outcome{}, errPermanent
	})
	require.Same(t, errPermanent, err)
	row, _ := b.row(t, req)
	require.Equal(t, ledger.Completed, row.Status)
	require.Equal(t, outcome("did b"), row.Outcome)
	require.Zero(t, b.effects(t, "a"))
	require.Equal(t, 1, b.effects(t, "b"))
}

func TestSwallowedSQLErrorCommitsNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.execute(t, records(request("a")), func(ctx context.Context) (ledger.Outcome, error) {
		if err := ledgertest.Effect(ctx, "a"); err != nil {
			return ledger.Outcome{}, err
		}
		tx, _ := ledger.Tx(ctx)
		_, err := tx.Exec(ctx, "SELECT 1/0")
		assert.Error(t, err)
		return outcome("did a"), nil
	})
	require.ErrorIs(t, err, pgx.ErrTxCommitRollback)
	require.Zero(t, b.effects(t, "a"))
	row, _ := b.row(t, request("a"))
	require.Equal(t, ledger.FailedRetryable, row.Status)
}
