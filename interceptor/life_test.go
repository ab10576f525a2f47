package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdkinterceptor "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

// after tells when an activity has left the plugin.
type after struct {
	sdkinterceptor.InterceptorBase
	left chan error
}

func (a *after) InterceptActivity(_ context.Context, next sdkinterceptor.ActivityInboundInterceptor) sdkinterceptor.ActivityInboundInterceptor {
	return &afterInbound{sdkinterceptor.ActivityInboundInterceptorBase{Next: next}, a}
}

type afterInbound struct {
	sdkinterceptor.ActivityInboundInterceptorBase
	*after
}

func (a *afterInbound) ExecuteActivity(ctx context.Context, in *sdkinterceptor.ExecuteActivityInput) (any, error) {
	result, err := a.Next.ExecuteActivity(ctx, in)
	a.left <- err
	return result, err
}

// TestTheLastExecutionClosesWhatItNeeded: it outlives its worker's stop and the
// wait for it, commits, and leaves nothing open.
func TestTheLastExecutionClosesWhatItNeeded(t *testing.T) {
	t.Parallel()
	outside := &after{left: make(chan error, 1)}
	b := setup(t, func(b *bundle, o *client.Options) {
		b.options.DrainTimeout = 50 * time.Millisecond
		o.Interceptors = append(o.Interceptors, outside)
	})
	entered, proceed := make(chan struct{}), make(chan struct{})
	w := worker.New(b.client, b.queue, worker.Options{})
	registerOne(w)
	w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
		did, err := does(ctx, "a")
		close(entered)
		<-proceed
		return did, err
	}, name("outlives"))
	require.NoError(t, w.Start())
	_, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, one, withDefaults(workflow.ActivityOptions{}), "outlives", []any{})
	require.NoError(t, err)
	<-entered
	w.Stop()
	require.True(t, b.plugin.Running(), "an execution still needs it")
	close(proceed)
	require.NoError(t, <-outside.left)
	require.False(t, b.plugin.Running())
	require.Equal(t, 1, b.effects(t, "a"))

	b.worker(t, registerTransfer) // and it starts again
	_, err = b.call(t, workflow.ActivityOptions{}, "does", "b")
	require.NoError(t, err)
}

// TestAStartAfterACloseThatGaveUpKeepsTheEngine: whoever was still running then
// closes nothing.
func TestAStartAfterACloseThatGaveUpKeepsTheEngine(t *testing.T) {
	t.Parallel()
	outside := &after{left: make(chan error, 2)}
	b := setup(t, func(b *bundle, o *client.Options) {
		b.options.DrainTimeout = 50 * time.Millisecond
		o.Interceptors = append(o.Interceptors, outside)
	})
	entered, proceed := make(chan struct{}), make(chan struct{})
	w := worker.New(b.client, b.queue, worker.Options{})
	registerOne(w)
	w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
		did, err := does(ctx, "a")
		close(entered)
		<-proceed
		return did, err
	}, name("outlives"))
	require.NoError(t, w.Start())
	_, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, one, withDefaults(workflow.ActivityOptions{}), "outlives", []any{})
	require.NoError(t, err)
	<-entered
	w.Stop()
	b.worker(t, registerTransfer)
	close(proceed)
	require.NoError(t, <-outside.left)
	require.True(t, b.plugin.Running())
	_, err = b.call(t, workflow.ActivityOptions{}, "does", "b")
	require.NoError(t, err)
	require.Equal(t, 1, b.effects(t, "a"))
}

// TestAStartThatHangsIsBoundedAndLeavesNothing: PostgreSQL takes the connection
// and says nothing.
func TestAStartThatHangsIsBoundedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, silent.Close()) })
	pool := itest.Pool(t, "postgres://nobody@"+silent.Addr().String()+"/none?sslmode=disable")
	p, err := interceptor.NewPlugin(interceptor.Options{Pool: pool, DataConverter: converter.GetDefaultDataConverter()})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.Start(ctx), context.DeadlineExceeded)
	require.False(t, p.Running())
	require.NoError(t, p.Close(t.Context()), "there is nothing to close")
}

func TestSeveralWorkersAndClientsOfOnePlugin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other, err := client.Dial(client.Options{HostPort: itest.Temporal(t), Logger: quiet{}, Plugins: []client.Plugin{b.plugin}})
	require.NoError(t, err)
	t.Cleanup(other.Close)
	first := worker.New(b.client, b.queue, worker.Options{})
	second := worker.New(other, b.queue, worker.Options{})
	for _, w := range []worker.Worker{first, second} {
		registerTransfer(w)
		require.NoError(t, w.Start())
	}
	first.Stop()
	require.True(t, b.plugin.Running())
	_, err = b.call(t, workflow.ActivityOptions{}, "does", "a")
	require.NoError(t, err)
	second.Stop()
	require.False(t, b.plugin.Running())
	require.Equal(t, []string{"executed"}, b.outcomes())
}

func TestTheStartSaysHowManySlotsAndConnectionsThereAre(t *testing.T) {
	t.Parallel()
	said := &lines{}
	dsn := ledgertest.Database(t)
	b := setupOn(t, dsn, itest.Pool(t, dsn, func(c *pgxpool.Config) { c.MaxConns = 7 }), func(b *bundle, _ *client.Options) {
		b.options.Logger = slog.New(said)
	})
	b.worker(t, registerTransfer, func(o *worker.Options) { o.MaxConcurrentActivityExecutionSize = 0 })
	require.Contains(t, said.all(), "activity_slots=1000 connections=7")
}

// lines is a slog.Handler that keeps what was logged.
type lines struct {
	slog.Handler
	mu   sync.Mutex
	text string
}

func (*lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text += r.Message
	r.Attrs(func(a slog.Attr) bool {
		l.text += " " + a.String()
		return true
	})
	l.text += "\n"
	return nil
}

func (l *lines) all() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

// activitiesOnly is the plugin's interceptor without its workflow side.
type activitiesOnly struct {
	sdkinterceptor.WorkerInterceptorBase
	inner sdkinterceptor.WorkerInterceptor
}

func (a *activitiesOnly) InterceptActivity(ctx context.Context, next sdkinterceptor.ActivityInboundInterceptor) sdkinterceptor.ActivityInboundInterceptor {
	return a.inner.InterceptActivity(ctx, next)
}

// TestAnUnstampedLocalActivityHasNoTransaction: it is refused for good, however
// the body wraps the refusal; one that never asks runs as ever.
func TestAnUnstampedLocalActivityHasNoTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plain, err := client.Dial(client.Options{HostPort: itest.Temporal(t), Logger: quiet{}})
	require.NoError(t, err)
	t.Cleanup(plain.Close)
	runs := make(chan struct{}, 10)
	asks := func(ctx context.Context) error {
		runs <- struct{}{}
		if _, err := ledger.Tx(ctx); err != nil {
			return fmt.Errorf("wrapped: %w", err)
		}
		return nil
	}
	w := worker.New(plain, b.queue, worker.Options{Interceptors: []sdkinterceptor.WorkerInterceptor{&activitiesOnly{inner: b.plugin.WorkerInterceptor()}}})
	w.RegisterWorkflowWithOptions(func(ctx workflow.Context, asking bool) (did string, err error) {
		ctx = workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: 10 * time.Second})
		if asking {
			return "", workflow.ExecuteLocalActivity(ctx, asks).Get(ctx, nil)
		}
		err = workflow.ExecuteLocalActivity(ctx, func(context.Context) (string, error) { return "ran", nil }).Get(ctx, &did)
		return did, err
	}, workflow.RegisterOptions{Name: "local"})
	require.NoError(t, w.Start())
	t.Cleanup(w.Stop)
	call := func(asking bool) (did string, err error) {
		run, err := plain.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, "local", asking)
		require.NoError(t, err)
		err = run.Get(t.Context(), &did)
		return did, err
	}
	did, err := call(false)
	require.NoError(t, err)
	require.Equal(t, "ran", did)
	_, err = call(true)
	require.Equal(t, interceptor.ErrTypeInvalid, b.appError(t, err).Type())
	require.Len(t, runs, 1)
}

// TestTheBodysOwnErrorIsItsOwn: though it wraps an error of some other ledger's.
func TestTheBodysOwnErrorIsItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	runs := make(chan struct{}, 10)
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) error {
			runs <- struct{}{}
			err := ledgertest.Effect(ctx, "a")
			return errors.Join(err, fmt.Errorf("mine: %w", ledger.NewError(ledger.CodeMismatch, "another ledger's", nil)))
		}, name("wraps"))
	})
	_, err := b.call(t, workflow.ActivityOptions{RetryPolicy: &temporal.RetryPolicy{MaximumAttempts: 2, InitialInterval: time.Millisecond}}, "wraps")
	e := b.appError(t, err)
	require.Equal(t, "mine: ledger: another ledger's", e.Message())
	require.NotEqual(t, interceptor.ErrTypeMismatch, e.Type())
	require.False(t, e.NonRetryable())
	require.Len(t, runs, 2)
	require.Equal(t, []string{"failed_retryable/2"}, b.statuses(t))
}

// TestTwoTestEnvironmentsDontMeet: all of them have one run ID, and local
// activities have no other time.
func TestTwoTestEnvironmentsDontMeet(t *testing.T) {
	t.Parallel()
	pool := itest.Pool(t, ledgertest.Database(t))
	p, err := interceptor.NewPlugin(interceptor.Options{Pool: pool, DataConverter: converter.GetDefaultDataConverter()})
	require.NoError(t, err)
	require.NoError(t, p.Start(t.Context()))
	t.Cleanup(func() { assert.NoError(t, p.Close(context.Background())) })
	for n := range 2 {
		var suite testsuite.WorkflowTestSuite
		env := suite.NewTestWorkflowEnvironment()
		env.SetWorkerOptions(worker.Options{Interceptors: []sdkinterceptor.WorkerInterceptor{p.WorkerInterceptor()}})
		env.RegisterActivityWithOptions(does, name("does"))
		env.ExecuteWorkflow(func(ctx workflow.Context) error {
			local := workflow.WithLocalActivityOptions(ctx, workflow.LocalActivityOptions{StartToCloseTimeout: 10 * time.Second})
			if err := workflow.ExecuteLocalActivity(local, does, "local").Get(ctx, nil); err != nil {
				return err
			}
			ctx = workflow.WithActivityOptions(ctx, workflow.ActivityOptions{StartToCloseTimeout: 10 * time.Second})
			return workflow.ExecuteActivity(ctx, "does", "regular").Get(ctx, nil)
		})
		require.NoError(t, env.GetWorkflowError())
		require.Equal(t, n+1, ledgertest.Effects(t, pool, "local"))
		require.Equal(t, n+1, ledgertest.Effects(t, pool, "regular"))
	}

	var suite testsuite.WorkflowTestSuite
	env := suite.NewTestActivityEnvironment()
	env.SetWorkerOptions(worker.Options{Interceptors: []sdkinterceptor.WorkerInterceptor{p.WorkerInterceptor()}})
	env.RegisterActivityWithOptions(large, activity.RegisterOptions{Name: "large"})
	value, err := env.ExecuteActivity("large")
	require.NoError(t, err)
	var got []byte
	require.NoError(t, value.Get(&got))
	require.Len(t, got, 100<<10, "though no server can be asked for its limit")
}

func large(ctx context.Context) ([]byte, error) {
	return make([]byte, 100<<10), ledgertest.Effect(ctx, "large")
}
