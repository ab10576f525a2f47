package interceptor_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	sdkinterceptor "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/interceptor"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/ledger"
)

// loses is an interceptor outside the plugin's that loses the first n answers:
// the effect is committed, and Temporal hears of an error instead.
type loses struct {
	n    atomic.Int32
	then func(context.Context) // called when one is lost
}

func newLoses(n int32) *loses {
	l := &loses{}
	l.n.Store(n)
	return l
}

func (l *loses) InterceptActivity(_ context.Context, next sdkinterceptor.ActivityInboundInterceptor) sdkinterceptor.ActivityInboundInterceptor {
	return &losesInbound{sdkinterceptor.ActivityInboundInterceptorBase{Next: next}, l}
}

type losesInbound struct {
	sdkinterceptor.ActivityInboundInterceptorBase
	*loses
}

var errLost = errors.New("the answer was lost")

func (l *losesInbound) ExecuteActivity(ctx context.Context, in *sdkinterceptor.ExecuteActivityInput) (any, error) {
	result, err := l.Next.ExecuteActivity(ctx, in)
	if l.n.Add(-1) >= 0 {
		if l.then != nil {
			l.then(ctx)
		}
		return nil, errLost
	}
	return result, err
}

func losing(n int32) change {
	return func(_ *bundle, o *client.Options) {
		o.Interceptors = append(o.Interceptors, &bothSides{loses: newLoses(n)})
	}
}

// bothSides lets a worker's interceptor go into a client's options, outside the plugin's.
type bothSides struct {
	sdkinterceptor.InterceptorBase
	*loses
}

func (s *bothSides) InterceptActivity(ctx context.Context, next sdkinterceptor.ActivityInboundInterceptor) sdkinterceptor.ActivityInboundInterceptor {
	return s.loses.InterceptActivity(ctx, next)
}

func TestLostAnswersAreReplayed(t *testing.T) {
	t.Parallel()
	type payload struct {
		Text string
		Big  int64
	}
	result := payload{Text: "a\u0000b", Big: 1<<62 + 1}
	var runs atomic.Int32
	activities := map[string]any{
		"late": func(ctx context.Context) (payload, error) {
			runs.Add(1)
			return result, ledgertest.Effect(ctx, "late")
		},
		"silent": func(context.Context) (payload, error) {
			runs.Add(1)
			return result, nil
		},
		"void": func(ctx context.Context) error {
			runs.Add(1)
			return ledgertest.Effect(ctx, "void")
		},
		"nil": func(ctx context.Context) (*payload, error) {
			runs.Add(1)
			return nil, ledgertest.Effect(ctx, "nil")
		},
	}
	for n, f := range activities {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			b := setup(t, losing(2))
			b.worker(t, func(w worker.Worker) {
				registerOne(w)
				w.RegisterActivityWithOptions(f, name(n))
			})
			got, err := b.call(t, workflow.ActivityOptions{}, n)
			require.NoError(t, err)
			if n == "void" || n == "nil" {
				require.Nil(t, got)
			} else {
				require.Equal(t, "a\u0000b", got.(map[string]any)["Text"])
			}
			want := 1
			if n == "silent" {
				want = 0
			}
			require.Equal(t, want, b.effects(t, n))
			outcomes := b.outcomes()
			require.Len(t, outcomes, 3)
			require.Equal(t, "executed", outcomes[0])
			for _, o := range outcomes[1:] {
				require.Contains(t, []string{"gate_replay", "ledger_replay"}, o)
			}
			require.Equal(t, []string{"completed/1"}, b.statuses(t))
		})
	}
	t.Cleanup(func() { assert.EqualValues(t, len(activities), runs.Load(), "each body ran once") })
}

func transferOnce(ctx context.Context, tx pgx.Tx, in string) (string, error) {
	return "typed " + in, ledgertest.Write(ctx, tx, in)
}

func TestTypedWrapperBeginsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, losing(1), func(b *bundle, _ *client.Options) { b.options.Gate = nil })
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		interceptor.Register(w, transferOnce, activity.RegisterOptions{})
	})
	got, err := b.call(t, workflow.ActivityOptions{}, "transferOnce", "x")
	require.NoError(t, err)
	require.Equal(t, "typed x", got)
	require.Equal(t, 1, b.effects(t, "x"))
	require.Equal(t, []string{"executed", "ledger_replay"}, b.outcomes())
}

func TestPermanentFailuresAreReplayedAsTheyWere(t *testing.T) {
	t.Parallel()
	var runs atomic.Int32
	byError := func(context.Context) error {
		runs.Add(1)
		return temporal.NewNonRetryableApplicationError("no such account", "NoAccount", errors.New("the cause"), map[string]int{"account": 7})
	}
	byPolicy := func(ctx context.Context) error {
		runs.Add(1)
		if err := ledgertest.Effect(ctx, "failed"); err != nil {
			return err
		}
		return temporal.NewApplicationErrorWithCause("not enough", "NotEnough", errors.New("the cause"), map[string]int{"account": 7})
	}
	b := setup(t)
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(byError, name("byError"))
		w.RegisterActivityWithOptions(byPolicy, name("byPolicy"))
	})
	for n, typ := range map[string]string{"byError": "NoAccount", "byPolicy": "NotEnough"} {
		_, err := b.call(t, workflow.ActivityOptions{RetryPolicy: &temporal.RetryPolicy{NonRetryableErrorTypes: []string{"NotEnough"}}}, n)
		e := b.appError(t, err)
		require.Equal(t, typ, e.Type())
	}
	require.Equal(t, int32(2), runs.Load())
	require.Zero(t, b.effects(t, "failed"))
	require.Equal(t, []string{"failed_permanent/1", "failed_permanent/1"}, b.statuses(t))
}

func TestALostPermanentFailureIsReplayed(t *testing.T) {
	t.Parallel()
	var runs atomic.Int32
	b := setup(t, losing(1))
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) error {
			runs.Add(1)
			if err := ledgertest.Effect(ctx, "failed"); err != nil {
				return err
			}
			return temporal.NewNonRetryableApplicationError("no such account", "NoAccount", errors.New("the cause"), map[string]int{"account": 7})
		}, name("fails"))
	})
	_, err := b.call(t, workflow.ActivityOptions{}, "fails")
	e := b.appError(t, err)
	require.Equal(t, "NoAccount", e.Type())
	require.True(t, e.NonRetryable())
	require.ErrorContains(t, e.Unwrap(), "the cause")
	var details map[string]int
	require.NoError(t, e.Details(&details))
	require.Equal(t, map[string]int{"account": 7}, details)
	require.Equal(t, int32(1), runs.Load())
	require.Zero(t, b.effects(t, "failed"))
	require.Equal(t, []string{"failed", "ledger_replay"}, b.outcomes())
}

func TestRetryableFailuresRunAgain(t *testing.T) {
	t.Parallel()
	var runs atomic.Int32
	b := setup(t)
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
			did, err := does(ctx, "a")
			if runs.Add(1) < 3 {
				return "", errors.New("not yet")
			}
			return did, err
		}, name("flaky"))
	})
	got, err := b.call(t, workflow.ActivityOptions{}, "flaky")
	require.NoError(t, err)
	require.Equal(t, "did a", got)
	require.Equal(t, 1, b.effects(t, "a"))
	require.Equal(t, []string{"completed/3"}, b.statuses(t))
}

func TestOversizeResultIsRolledBackAndNotRetried(t *testing.T) {
	t.Parallel()
	var runs atomic.Int32
	b := setup(t)
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) ([]byte, error) {
			runs.Add(1)
			return make([]byte, 2<<20), ledgertest.Effect(ctx, "big")
		}, name("big"))
	})
	_, err := b.call(t, workflow.ActivityOptions{}, "big")
	e := b.appError(t, err)
	require.Equal(t, interceptor.ErrTypeResultTooLarge, e.Type())
	require.True(t, e.NonRetryable())
	require.Equal(t, int32(1), runs.Load())
	require.Zero(t, b.effects(t, "big"))
}

func TestLargeResultsAreReplayedWhole(t *testing.T) {
	t.Parallel()
	b := setup(t, losing(1))
	want := make([]byte, 1<<20)
	for i := range want {
		want[i] = byte(i)
	}
	var got []byte
	b.worker(t, func(w worker.Worker) {
		w.RegisterWorkflowWithOptions(func(ctx workflow.Context) (n int, err error) {
			err = workflow.ExecuteActivity(workflow.WithActivityOptions(ctx, withDefaults(workflow.ActivityOptions{})), "large").Get(ctx, &got)
			return len(got), err
		}, workflow.RegisterOptions{Name: "large"})
		w.RegisterActivityWithOptions(func(ctx context.Context) ([]byte, error) {
			return want, ledgertest.Effect(ctx, "large")
		}, name("large"))
	})
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, "large")
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	require.Equal(t, want, got)
	require.Equal(t, 1, b.effects(t, "large"))
}

func TestAsynchronousCompletion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tokens := make(chan []byte, 1)
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
			tokens <- activity.GetInfo(ctx).TaskToken
			return "", activity.ErrResultPending
		}, name("later"))
		w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
			if err := ledgertest.Effect(ctx, "both"); err != nil {
				return "", err
			}
			return "", activity.ErrResultPending
		}, name("both"))
	})
	go func() { assert.NoError(t, b.client.CompleteActivity(t.Context(), <-tokens, "done later", nil)) }()
	got, err := b.call(t, workflow.ActivityOptions{}, "later")
	require.NoError(t, err)
	require.Equal(t, "done later", got)
	require.Empty(t, b.statuses(t))

	_, err = b.call(t, workflow.ActivityOptions{}, "both")
	e := b.appError(t, err)
	require.Equal(t, interceptor.ErrTypeInvalid, e.Type())
	require.ErrorContains(t, err, "complete asynchronously")
	require.Zero(t, b.effects(t, "both"))
}

func TestBodyThatEndsTheTransactionIsNeverRunAgain(t *testing.T) {
	t.Parallel()
	var runs atomic.Int32
	b := setup(t)
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) error {
			runs.Add(1)
			tx, err := ledger.Tx(ctx)
			if err != nil {
				return err
			}
			if err := ledgertest.Write(ctx, tx, "slipped"); err != nil {
				return err
			}
			_, err = tx.Conn().Exec(ctx, "commit")
			return err
		}, name("slips"))
	})
	_, err := b.call(t, workflow.ActivityOptions{}, "slips")
	e := b.appError(t, err)
	require.Equal(t, interceptor.ErrTypeInvalid, e.Type())
	require.True(t, e.NonRetryable())
	require.ErrorContains(t, err, "ended the ledger's transaction itself")
	require.Equal(t, int32(1), runs.Load())
	require.Equal(t, 1, b.effects(t, "slipped"))
}

func TestKeyForOutsideAPIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var keys [3]ledger.Key
	var n atomic.Int32
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) error {
			i := n.Add(1) - 1
			k, ok := interceptor.Key(ctx)
			assert.True(t, ok)
			keys[i] = k
			if i == 0 {
				return errors.New("again")
			}
			return nil
		}, name("keyed"))
	})
	for range 2 {
		_, err := b.call(t, workflow.ActivityOptions{}, "keyed")
		require.NoError(t, err)
	}
	require.Equal(t, keys[0], keys[1], "the same at each attempt")
	require.NotEqual(t, keys[1], keys[2], "another run, another key")
	_, ok := interceptor.Key(t.Context())
	require.False(t, ok)
}

func TestModeOff(t *testing.T) {
	t.Parallel()
	b := setup(t, losing(1), func(b *bundle, _ *client.Options) {
		b.options.Policies = map[string]interceptor.Policy{"off": {Mode: interceptor.Off}}
	})
	var runs atomic.Int32
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) error {
			runs.Add(1)
			_, err := ledger.Tx(ctx)
			assert.ErrorIs(t, err, ledger.ErrNoExecution)
			return nil
		}, name("off"))
	})
	_, err := b.call(t, workflow.ActivityOptions{}, "off")
	require.NoError(t, err)
	require.Equal(t, int32(2), runs.Load())
	require.Empty(t, b.statuses(t))
}

func TestZombieIsFenced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var runs atomic.Int32
	second := make(chan struct{})
	first := make(chan error, 1)
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
			if runs.Add(1) == 1 {
				<-second // its deadline has passed, another has done the work
				did, err := does(ctx, "a")
				first <- err
				return did, err
			}
			did, err := does(ctx, "a")
			return did, err
		}, name("slow"))
		w.RegisterActivityWithOptions(func(context.Context) error { return nil }, name("nothing"))
	})
	got, err := b.call(t, workflow.ActivityOptions{StartToCloseTimeout: time.Second}, "slow")
	require.NoError(t, err)
	require.Equal(t, "did a", got)
	close(second)
	require.Error(t, <-first)
	require.Equal(t, 1, b.effects(t, "a"))
}
