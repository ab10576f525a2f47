package ledger_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

func TestMain(m *testing.M) { os.Exit(itest.Main(m)) }

// bundle is what a test of the ledger has: a database of its own.
type bundle struct {
	dsn   string
	pool  *pgxpool.Pool
	store *ledger.Store
}

func setup(t *testing.T, configure ...func(*ledger.Config)) *bundle {
	t.Helper()
	dsn := ledgertest.Database(t)
	pool := itest.Pool(t, dsn)
	return &bundle{dsn: dsn, pool: pool, store: ledgertest.Store(t, pool, configure...)}
}

func request(name string) ledger.Request {
	return ledger.Request{
		Key:         ledger.Key(sha256.Sum256([]byte(name))),
		Fingerprint: ledger.Fingerprint(sha256.Sum256([]byte("request of " + name))),
		Wait:        -1,
	}
}

func outcome(text string) ledger.Outcome {
	return ledger.Outcome{Encoding: "test/1", Data: []byte(text)}
}

// writes is a body that has one effect and returns its name.
func writes(name string) ledger.Body {
	return func(ctx context.Context) (ledger.Outcome, error) {
		if err := ledgertest.Effect(ctx, name); err != nil {
			return ledger.Outcome{}, err
		}
		return outcome("did " + name), nil
	}
}

func never(t *testing.T) ledger.Body {
	return func(context.Context) (ledger.Outcome, error) {
		t.Error("the body ran")
		return ledger.Outcome{}, errors.New("the body ran")
	}
}

func (b *bundle) execute(t *testing.T, req ledger.Request, body ledger.Body) (ledger.Result, error) {
	t.Helper()
	return b.store.Execute(t.Context(), req, body)
}

func (b *bundle) row(t *testing.T, req ledger.Request) (ledger.Row, bool) {
	t.Helper()
	row, ok, err := b.store.Look(t.Context(), ledger.Ref{Owner: req.Owner, Key: req.Key})
	require.NoError(t, err)
	return row, ok
}

func (b *bundle) effects(t *testing.T, name string) int {
	t.Helper()
	return ledgertest.Effects(t, b.pool, name)
}

func (b *bundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := b.pool.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// leased puts a row there that another runner holds by a lease.
func (b *bundle) leased(t *testing.T, req ledger.Request, left time.Duration) {
	t.Helper()
	b.exec(t, `INSERT INTO platform_idempotency_keys (idempotency_key, request_fingerprint, expires_at)
VALUES ($1, $2, clock_timestamp() + $3)`, req.Key[:], req.Fingerprint[:], left)
}
