package snippets_test

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdkinterceptor "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/ledger"
	"github.com/effectonce/effectonce/migrations"
)

// snippet: activity

// Transfer is the input of MoveMoney.
type Transfer struct {
	From, To string
	Amount   int64
}

// MoveMoney returns what is left on the first account.
func MoveMoney(ctx context.Context, tx pgx.Tx, t Transfer) (left int64, err error) {
	if _, err := tx.Exec(ctx, "UPDATE accounts SET balance = balance + $1 WHERE id = $2", t.Amount, t.To); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, "UPDATE accounts SET balance = balance - $1 WHERE id = $2 RETURNING balance",
		t.Amount, t.From).Scan(&left)
	return left, err
}

// end

// snippet: worker
func run(pool *pgxpool.Pool, valkeyAddr, temporalAddr string, stop <-chan any) error {
	plugin, err := interceptor.NewPlugin(interceptor.Options{
		Pool: pool,
		Gate: &gate.Config{Valkey: valkey.ClientOption{InitAddress: []string{valkeyAddr}}},
	})
	if err != nil {
		return err
	}
	c, err := client.Dial(client.Options{HostPort: temporalAddr, Plugins: []client.Plugin{plugin}})
	if err != nil {
		return err
	}
	defer c.Close()
	w := worker.New(c, "payments", worker.Options{})
	interceptor.Register(w, MoveMoney, activity.RegisterOptions{})
	return w.Run(stop) // in a main function, worker.InterruptCh()
}

// end

// snippet: workflow

// Pay calls the activity by its name.
func Pay(ctx workflow.Context, t Transfer) (left int64, err error) {
	ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:              "payments",
		StartToCloseTimeout:    10 * time.Second,
		ScheduleToCloseTimeout: time.Hour,
	})
	err = workflow.ExecuteActivity(ctx, "MoveMoney", t).Get(ctx, &left)
	return left, err
}

// end

// snippet: late

// CloseAccount is a plain activity: it asks for its transaction when it needs it.
func CloseAccount(ctx context.Context, id string) error {
	tx, err := ledger.Tx(ctx)
	if err != nil {
		return err // return it as it is: ledger.ErrReplay is answered with the recorded result
	}
	_, err = tx.Exec(ctx, "DELETE FROM accounts WHERE id = $1", id)
	return err
}

// end

// Payments is an outside API that takes idempotency keys.
type Payments interface {
	Charge(ctx context.Context, idempotencyKey string, amount int64) error
}

// Shop has activities that call an outside API.
type Shop struct{ payments Payments }

// snippet: outside

// Charge hands its key to an outside API, the same one at every attempt.
func (s *Shop) Charge(ctx context.Context, amount int64) error {
	key, _ := interceptor.Key(ctx)
	return s.payments.Charge(ctx, key.String(), amount)
}

// end

// snippet: migrate
func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	m, err := migrations.New(pool, migrations.Options{Schema: "effectonce"})
	if err != nil {
		return err
	}
	_, err = m.Up(ctx)
	return err
}

// end

// snippet: print
func printSQL(w io.Writer, pool *pgxpool.Pool) error { // connects to nothing
	m, err := migrations.New(pool, migrations.Options{Schema: "effectonce", TenantsTable: "app.tenants"})
	if err != nil {
		return err
	}
	return m.Print(w)
}

// end

// snippet: grants
func grants(ctx context.Context, m *migrations.Migrator, admin *pgxpool.Pool, role string) error {
	statements, err := m.Grants(role)
	if err != nil {
		return err
	}
	_, err = admin.Exec(ctx, statements)
	return err
}

// end

// snippet: policies
func options(pool *pgxpool.Pool) interceptor.Options {
	return interceptor.Options{
		Pool:   pool,
		Schema: "effectonce",
		Policies: map[string]interceptor.Policy{
			"MoveMoney":  {Isolation: pgx.Serializable, Retention: 30 * 24 * time.Hour},
			"SendReport": {Mode: interceptor.Off},
		},
	}
}

// end

// snippet: worker-only
func onWorkerOnly(c client.Client, queue string, options interceptor.Options) (worker.Worker, error) {
	options.DataConverter = converter.GetDefaultDataConverter() // or what the client has
	plugin, err := interceptor.NewPlugin(options)
	if err != nil {
		return nil, err
	}
	return worker.New(c, queue, worker.Options{Plugins: []worker.Plugin{plugin}}), nil
}

// end

// snippet: typed

// newMove defines the operation, once; MoveMoney is its handler as well.
func newMove() (*ledger.Operation[Transfer, int64], error) {
	return ledger.NewOperation(ledger.OperationOptions[Transfer, int64]{ID: "money.move"})
}

// post answers a request of a user who is authenticated and may do this.
func post(ctx context.Context, on ledger.Executor, move *ledger.Operation[Transfer, int64],
	user, idempotencyKey string, t Transfer,
) (left int64, err error) {
	scope, err := ledger.NewScope(ledger.Platform(), user)
	if err != nil {
		return 0, err
	}
	key, err := ledger.ParseClientKey(idempotencyKey)
	if err != nil {
		return 0, err
	}
	answer, err := move.Run(ctx, on, scope, key, t, MoveMoney)
	return answer.Value(), err
}

// end

// snippet: test-environment
func testMoveMoney(t *testing.T, pool *pgxpool.Pool) (left int64) {
	plugin, err := interceptor.NewPlugin(interceptor.Options{
		Pool:          pool,
		DataConverter: converter.GetDefaultDataConverter(),
	})
	require.NoError(t, err)
	require.NoError(t, plugin.Start(t.Context()))
	defer func() { require.NoError(t, plugin.Close(context.Background())) }()

	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetWorkerOptions(worker.Options{
		Interceptors: []sdkinterceptor.WorkerInterceptor{plugin.WorkerInterceptor()},
	})
	interceptor.Register(env, MoveMoney, activity.RegisterOptions{})
	result, err := env.ExecuteActivity("MoveMoney", Transfer{From: "ann", To: "bob", Amount: 30})
	require.NoError(t, err)
	require.NoError(t, result.Get(&left))
	return left
}

// end
