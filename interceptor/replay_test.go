package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/effectonce/effectonce/internal/itest"
)

// permanents are failures that nobody retries, by themselves or by the retry
// policy of permanently.
var permanents = map[string]func() error{
	"by the error": func() error {
		return temporal.NewNonRetryableApplicationError("no such account", "NoAccount", nil)
	},
	"with details": func() error {
		return temporal.NewNonRetryableApplicationError("no such account", "NoAccount", nil, 7, "b\u0000", map[string]int64{"n": 1<<53 + 1})
	},
	"with a chain": func() error {
		inner := temporal.NewApplicationErrorWithCause("inner", "Inner", fmt.Errorf("wraps: %w", errors.New("the cause")), "inner detail")
		return temporal.NewNonRetryableApplicationError("outer", "Outer", inner, "outer detail")
	},
	"a canceled error in the chain": func() error {
		return temporal.NewNonRetryableApplicationError("outer", "Outer", temporal.NewCanceledError("by whom"))
	},
	"benign": func() error {
		return temporal.NewApplicationErrorWithOptions("benign", "Benign", temporal.ApplicationErrorOptions{
			NonRetryable: true, Category: temporal.ApplicationErrorCategoryBenign, NextRetryDelay: time.Minute,
		})
	},
	"without a type":     func() error { return temporal.NewNonRetryableApplicationError("no type", "", nil) },
	"by its type":        func() error { return temporal.NewApplicationError("fatal", "Fatal", "detail") },
	"by a type of Go's":  func() error { return &typedError{"typed"} },
	"by a joined error":  func() error { return errors.Join(errors.New("one"), errors.New("two")) },
	"by a wrapping type": func() error { return fmt.Errorf("outside: %w", &typedError{"typed"}) },
}

// TestReplayedFailuresAreThoseOfTheFirstAnswer: the history of a replay has the
// failure that a worker without the plugin would have left there.
func TestReplayedFailuresAreThoseOfTheFirstAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, func(_ *bundle, o *client.Options) {
		o.Interceptors = append(o.Interceptors, &losesFirst{failures: true})
	})
	plain, err := client.Dial(client.Options{HostPort: itest.Temporal(t), Logger: quiet{}})
	require.NoError(t, err)
	t.Cleanup(plain.Close)
	without := worker.New(plain, b.queue+" without", worker.Options{})
	register := func(effect func(context.Context, string) (string, error)) func(worker.Worker) {
		return func(w worker.Worker) {
			registerOne(w)
			for n, fails := range permanents {
				w.RegisterActivityWithOptions(func(ctx context.Context) error {
					if _, err := effect(ctx, n); err != nil {
						return err
					}
					return fails()
				}, name(n))
			}
		}
	}
	register(func(context.Context, string) (string, error) { return "", nil })(without)
	require.NoError(t, without.Start())
	t.Cleanup(without.Stop)
	b.worker(t, register(does))
	for n := range permanents {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, permanently(t, plain, b.queue+" without", n), permanently(t, b.client, b.queue, n))
			require.Zero(t, b.effects(t, n))
		})
	}
}

// permanently is the failure in the history of that activity, without its stack.
func permanently(t *testing.T, c client.Client, queue, n string) string {
	t.Helper()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, one,
		withDefaults(workflow.ActivityOptions{RetryPolicy: &temporal.RetryPolicy{
			InitialInterval: time.Millisecond, NonRetryableErrorTypes: []string{"Fatal", "typedError", "joinError", "wrapError"},
		}}), n, []any{})
	require.NoError(t, err)
	require.Error(t, run.Get(t.Context(), nil))
	history := c.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		e, err := history.Next()
		require.NoError(t, err)
		if a := e.GetActivityTaskFailedEventAttributes(); a != nil {
			require.Equal(t, enumspb.RETRY_STATE_NON_RETRYABLE_FAILURE, a.GetRetryState())
			return protojson.Format(stackless(a.GetFailure()))
		}
	}
	require.Fail(t, "no activity has failed")
	return ""
}

func stackless(f *failurepb.Failure) *failurepb.Failure {
	for cause := f; cause != nil; cause = cause.GetCause() {
		cause.StackTrace = ""
	}
	return f
}
