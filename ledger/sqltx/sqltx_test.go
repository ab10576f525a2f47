package sqltx_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
	"github.com/effectonce/effectonce/ledger/sqltx"
)

func TestMain(m *testing.M) { os.Exit(itest.Main(m)) }

// bundle has a pool of one connection: a second one would be waited for in vain.
type bundle struct {
	pool  *pgxpool.Pool
	store *ledger.Store
}

func setup(t testing.TB, mode ...pgx.QueryExecMode) *bundle {
	t.Helper()
	pool := itest.Pool(t, ledgertest.Database(t), func(c *pgxpool.Config) {
		c.MaxConns = 1
		for _, m := range mode {
			c.ConnConfig.DefaultQueryExecMode = m
		}
	})
	return &bundle{pool: pool, store: ledgertest.Store(t, pool)}
}

// run executes once what has the transaction as a *sql.DB.
func (b *bundle) run(t testing.TB, name string, body func(context.Context, *sql.DB) error) error {
	t.Helper()
	_, err := b.store.Execute(t.Context(), ledger.Request{
		Key: sha256.Sum256([]byte(name)), Fingerprint: sha256.Sum256([]byte(name)), Begin: ledger.BeginAtOnce,
	}, func(ctx context.Context) (ledger.Outcome, error) {
		tx, err := ledger.Tx(ctx)
		if err != nil {
			return ledger.Outcome{}, err
		}
		db := sqltx.Open(tx)
		err = body(ctx, db)
		return ledger.Outcome{Encoding: "none"}, errors.Join(err, db.Close())
	})
	return err
}

const insert = "INSERT INTO effects (name) VALUES ($1)"

func TestWritesCommitWithTheClaimOrNotAtAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	writes := func(ctx context.Context, db *sql.DB) error {
		r, err := db.ExecContext(ctx, insert, "a")
		require.NoError(t, err)
		n, err := r.RowsAffected()
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		return nil
	}
	err := b.run(t, "a", func(ctx context.Context, db *sql.DB) error {
		return errors.Join(writes(ctx, db), errors.New("no"))
	})
	require.EqualError(t, err, "no")
	require.Zero(t, ledgertest.Effects(t, b.pool, "a"))
	for range 2 {
		require.NoError(t, b.run(t, "a", writes))
	}
	require.Equal(t, 1, ledgertest.Effects(t, b.pool, "a"))
}

func TestTheTransactionCanNotBeEnded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.run(t, "a", func(ctx context.Context, db *sql.DB) error {
		for _, statement := range []string{"COMMIT", "rollback", "/* x */ END", "PREPARE TRANSACTION 'x'", "ABORT"} {
			_, err := db.ExecContext(ctx, statement)
			assert.ErrorIs(t, err, ledger.ErrTxOwned, statement)
			_, err = db.QueryContext(ctx, statement) //nolint:rowserrcheck,sqlclosecheck // there are none
			assert.ErrorIs(t, err, ledger.ErrTxOwned, statement)
			s, err := db.PrepareContext(ctx, statement)
			require.NoError(t, err)
			_, err = s.ExecContext(ctx)
			assert.ErrorIs(t, err, ledger.ErrTxOwned, statement)
			require.NoError(t, s.Close()) //nolint:sqlclosecheck // in a loop
		}
		_, err := db.ExecContext(ctx, insert, "a")
		return err
	}))
	require.Equal(t, 1, ledgertest.Effects(t, b.pool, "a"))
}

func TestNestedTransactionsAreSavepoints(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.run(t, "a", func(ctx context.Context, db *sql.DB) error {
		for name, end := range map[string]func(*sql.Tx) error{"kept": (*sql.Tx).Commit, "undone": (*sql.Tx).Rollback} {
			tx, err := db.BeginTx(ctx, nil)
			require.NoError(t, err)
			_, err = tx.ExecContext(ctx, insert, name)
			require.NoError(t, err)
			_, err = tx.ExecContext(ctx, "COMMIT")
			require.ErrorIs(t, err, ledger.ErrTxOwned)
			_, err = db.ExecContext(ctx, insert, "beside")
			require.ErrorIs(t, err, sqltx.ErrBusy)
			require.NoError(t, end(tx))
		}
		// A failed statement costs its savepoint only.
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		_, err = tx.ExecContext(ctx, "SELECT 1/0")
		require.Error(t, err)
		require.NoError(t, tx.Rollback())
		_, err = db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelSerializable})
		require.ErrorContains(t, err, "a savepoint has no options of its own")
		_, err = db.ExecContext(ctx, insert, "after")
		return err
	}))
	for name, want := range map[string]int{"kept": 1, "undone": 0, "beside": 0, "after": 1} {
		require.Equal(t, want, ledgertest.Effects(t, b.pool, name), name)
	}
}

func TestItIsDeadAfterTheBody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var kept *sql.DB
	require.NoError(t, b.run(t, "a", func(ctx context.Context, _ *sql.DB) error {
		tx, err := ledger.Tx(ctx)
		kept = sqltx.Open(tx)
		return err
	}))
	defer func() { require.NoError(t, kept.Close()) }()
	_, err := kept.ExecContext(t.Context(), insert, "late")
	require.ErrorContains(t, err, "can't be used after the body has returned")
	require.Zero(t, ledgertest.Effects(t, b.pool, "late"))
}

func TestRowsLeftOpenAreSaidClearly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	err := b.run(t, "a", func(ctx context.Context, db *sql.DB) error {
		rows, err := db.QueryContext(context.WithoutCancel(ctx), "SELECT generate_series(1, 100000)") //nolint:rowserrcheck,sqlclosecheck // left open on purpose
		require.NoError(t, err)
		require.True(t, rows.Next())
		_, err = db.ExecContext(ctx, insert, "a")
		require.ErrorIs(t, err, sqltx.ErrBusy)
		return nil
	})
	require.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
	require.ErrorContains(t, err, "rows or a batch still open")
	require.NoError(t, b.run(t, "b", func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, insert, "b")
		return err
	}))
}

// TestValues: in each of pgx's modes a column is what database/sql makes of it
// elsewhere.
func TestValues(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 7, 1, 12, 30, 0, 123456000, time.UTC)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			b := setup(t, mode)
			require.NoError(t, b.run(t, "a", func(ctx context.Context, db *sql.DB) error {
				for sent, want := range map[string]any{
					"true": true, "1::int2": int64(1), "-2::int4": int64(-2), "3::int8": int64(3),
					"0.5::float4": 0.5, "0.25::float8": 0.25, "1.50::numeric": "1.50", "'é'::text": "é",
					`'\x00ff'::bytea`: []byte{0, 255}, `'{"a": 1}'::jsonb`: []byte(`{"a": 1}`), "NULL::int": nil,
					"'{1,2}'::int[]": "{1,2}", "'infinity'::timestamptz": "infinity",
					"'a8098c1a-f86e-11da-bd1a-00112444be1e'::uuid": "a8098c1a-f86e-11da-bd1a-00112444be1e",
				} {
					var got any
					require.NoError(t, db.QueryRowContext(ctx, "SELECT "+sent).Scan(&got), sent)
					require.Equal(t, want, got, sent)
				}
				var (
					text   sql.NullString
					number int
					moment time.Time
					day    time.Time
				)
				require.NoError(t, db.QueryRowContext(ctx, "SELECT $1::text, $2::int, $3::timestamptz, '2026-07-01'::date",
					sql.NullString{String: "s", Valid: true}, 7, at).Scan(&text, &number, &moment, &day))
				require.Equal(t, "s", text.String)
				require.Equal(t, 7, number)
				require.True(t, at.Equal(moment))
				require.Equal(t, at.Truncate(24*time.Hour), day)
				return nil
			}))
		})
	}
}

func TestColumnsAndErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.run(t, "a", func(ctx context.Context, db *sql.DB) error {
		rows, err := db.QueryContext(ctx, "SELECT n AS number, n::text AS name FROM generate_series(1, 3) n WHERE n > $1", 1)
		require.NoError(t, err)
		defer func() { _ = rows.Close() }()
		columns, err := rows.Columns()
		require.NoError(t, err)
		require.Equal(t, []string{"number", "name"}, columns)
		types, err := rows.ColumnTypes()
		require.NoError(t, err)
		require.Equal(t, "INT4", types[0].DatabaseTypeName())
		var names []string
		for rows.Next() {
			var number int
			var name string
			require.NoError(t, rows.Scan(&number, &name))
			names = append(names, name)
		}
		require.NoError(t, rows.Err())
		require.Equal(t, []string{"2", "3"}, names)
		require.ErrorIs(t, db.QueryRowContext(ctx, "SELECT 1 WHERE false").Scan(new(int)), sql.ErrNoRows)
		_, err = db.ExecContext(ctx, "SELECT @n", sql.Named("n", 1))
		require.ErrorContains(t, err, "named: use $1")
		_, err = db.ExecContext(ctx, "SELECT $1", sql.Out{Dest: new(int)})
		require.ErrorContains(t, err, "PostgreSQL has none")
		return nil
	}))
}

// Queries are what sqlc generates for database/sql, in short: it takes a
// *sql.DB, a *sql.Tx, or what Open returns. GORM, ent and bun take a *sql.DB too.
type Queries struct {
	db interface {
		ExecContext(context.Context, string, ...any) (sql.Result, error)
		QueryRowContext(context.Context, string, ...any) *sql.Row
	}
}

func (q *Queries) CreateNote(ctx context.Context, text string) (id int64, err error) {
	err = q.db.QueryRowContext(ctx, "INSERT INTO notes (text) VALUES ($1) RETURNING id", text).Scan(&id)
	return id, err
}

// PgxQueries are what sqlc generates for pgx/v5, in short: they take the
// transaction as it is.
type PgxQueries struct {
	db interface {
		QueryRow(context.Context, string, ...any) pgx.Row
	}
}

func (q *PgxQueries) CountNotes(ctx context.Context) (n int64, err error) {
	err = q.db.QueryRow(ctx, "SELECT count(*) FROM notes").Scan(&n)
	return n, err
}

// A handler whose queries are database/sql's joins the transaction.
func ExampleOpen() {
	itest.Example(func(t testing.TB) {
		b := setup(t)
		if _, err := b.pool.Exec(t.Context(), "CREATE TABLE notes (id bigint GENERATED ALWAYS AS IDENTITY, text text)"); err != nil {
			t.Fatal(err)
		}
		op, err := ledger.NewOperation(ledger.OperationOptions[string, int64]{ID: "notes.create"})
		if err != nil {
			t.Fatal(err)
		}
		handler := func(ctx context.Context, tx pgx.Tx, text string) (int64, error) {
			db := sqltx.Open(tx)
			defer func() { _ = db.Close() }()
			if _, err := (&Queries{db}).CreateNote(ctx, text); err != nil {
				return 0, err
			}
			return (&PgxQueries{tx}).CountNotes(ctx)
		}
		scope, err := ledger.NewScope(ledger.Platform(), "user-42")
		if err != nil {
			t.Fatal(err)
		}
		key, err := ledger.ParseClientKey("0190b4f2-7c3e-7a66-9f1d-2f6b7d1c9e55")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			answer, err := op.Run(t.Context(), b.store, scope, key, "buy tea", handler)
			fmt.Println("notes:", answer.Value(), "replayed:", answer.Replayed(), err)
		}
	})
	// Output:
	// notes: 1 replayed: false <nil>
	// notes: 1 replayed: true <nil>
}
