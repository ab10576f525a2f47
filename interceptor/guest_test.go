package interceptor_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	sdkinterceptor "go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/effectonce/effectonce/internal/itest"
)

// guests are activities that know nothing of the plugin.
var guests = map[string]any{
	"struct":    func(context.Context) (struct{ A, B int }, error) { return struct{ A, B int }{1, 2}, nil },
	"void":      func(context.Context) error { return nil },
	"nil":       func(context.Context) (*int, error) { return nil, nil },
	"nothing":   func() error { return nil },
	"bytes":     func() ([]byte, error) { return []byte{0, 1, 255}, nil },
	"empty":     func() (string, error) { return "", nil },
	"arguments": func(_ context.Context, a int, b string, c ...string) (string, error) { return fmt.Sprint(a, b, c), nil },
	"raw": func(context.Context) (converter.RawValue, error) {
		p, err := converter.GetDefaultDataConverter().ToPayload("raw")
		return converter.NewRawValue(p), err
	},
	"error":  func(context.Context) error { return errors.New("plain") },
	"typed":  func(context.Context) error { return &typedError{"typed"} },
	"joined": func(context.Context) error { return errors.Join(errors.New("one"), errors.New("two")) },
	"application": func(context.Context) (string, error) {
		return "ignored", temporal.NewApplicationErrorWithOptions("application", "Type", temporal.ApplicationErrorOptions{
			Details: []any{1, "two"}, Cause: errors.New("cause"), Category: temporal.ApplicationErrorCategoryBenign,
		})
	},
	"permanent": func(context.Context) error {
		return temporal.NewNonRetryableApplicationError("permanent", "Type", errors.New("cause"), "detail")
	},
	"wrapped permanent": func(context.Context) error {
		return fmt.Errorf("outside: %w", temporal.NewNonRetryableApplicationError("permanent", "Type", nil))
	},
	"by its type": func(context.Context) error { return temporal.NewApplicationError("by its type", "Fatal") },
	"canceled":    func(context.Context) error { return temporal.NewCanceledError("by itself") },
	"panic":       func(context.Context) error { panic("at the disco") },
	"unencodable": func(context.Context) (float64, error) { return math.NaN(), nil },
	"heartbeats": func(ctx context.Context) (string, error) {
		if activity.HasHeartbeatDetails(ctx) {
			var at int
			err := activity.GetHeartbeatDetails(ctx, &at)
			return fmt.Sprint("resumed at ", at), err
		}
		activity.RecordHeartbeat(ctx, 7)
		return "", errors.New("fails after its heartbeat")
	},
	"times out": func(ctx context.Context) error {
		if activity.GetInfo(ctx).Attempt == 1 {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	},
}

type typedError struct{ text string }

func (e *typedError) Error() string { return e.text }

// TestATransparentGuest: with the plugin installed and no policy written, the
// history says the same as without it, wherever other interceptors stand.
func TestATransparentGuest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	around := setupOn(t, b.dsn, b.pool, func(b *bundle, o *client.Options) {
		b.queue += " between interceptors"
		o.Interceptors = append(o.Interceptors, &passes{})
	})
	tracing := setupOn(t, b.dsn, b.pool, func(b *bundle, _ *client.Options) { b.queue += " traced" }, traced)
	plain, err := client.Dial(client.Options{HostPort: itest.Temporal(t), Logger: quiet{}})
	require.NoError(t, err)
	t.Cleanup(plain.Close)
	start := func(c client.Client, queue string, inside ...sdkinterceptor.WorkerInterceptor) {
		w := worker.New(c, queue, worker.Options{Interceptors: inside})
		registerOne(w)
		for n, f := range guests {
			w.RegisterActivityWithOptions(f, name(n))
		}
		require.NoError(t, w.Start())
		t.Cleanup(w.Stop)
	}
	start(plain, b.queue+" without")
	start(b.client, b.queue)
	start(around.client, around.queue, &passes{})
	start(tracing.client, tracing.queue)
	for n := range guests {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			without := told(t, plain, b.queue+" without", n)
			require.NotEmpty(t, without)
			require.Equal(t, without, told(t, b.client, b.queue, n))
			require.Equal(t, without, told(t, around.client, around.queue, n))
			require.Equal(t, without, told(t, tracing.client, tracing.queue, n))
		})
	}
}

// told is what the history tells of one activity: its attempts, and how each
// event of it ended, without stacks and without what says who and when.
func told(t *testing.T, c client.Client, queue, n string) (all []string) {
	t.Helper()
	args := map[string][]any{"arguments": {1, "b", "c", "d"}}[n]
	o := withDefaults(workflow.ActivityOptions{RetryPolicy: &temporal.RetryPolicy{
		InitialInterval: time.Millisecond, MaximumAttempts: 2, NonRetryableErrorTypes: []string{"Fatal"},
	}})
	if n == "times out" {
		o.StartToCloseTimeout = time.Second
	}
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: queue}, one, o, n, args)
	require.NoError(t, err)
	_ = run.Get(t.Context(), nil)
	history := c.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	bare := func(f *failurepb.Failure) string {
		for cause := f; cause != nil; cause = cause.GetCause() {
			cause.StackTrace = ""
		}
		return protojson.Format(f)
	}
	for history.HasNext() {
		e, err := history.Next()
		require.NoError(t, err)
		switch e.GetEventType() {
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_STARTED:
			a := e.GetActivityTaskStartedEventAttributes()
			all = append(all, fmt.Sprint("attempt ", a.GetAttempt(), bare(a.GetLastFailure())))
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
			all = append(all, "completed "+protojson.Format(e.GetActivityTaskCompletedEventAttributes().GetResult()))
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_FAILED:
			a := e.GetActivityTaskFailedEventAttributes()
			all = append(all, fmt.Sprint("failed ", a.GetRetryState(), bare(a.GetFailure())))
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
			a := e.GetActivityTaskTimedOutEventAttributes()
			all = append(all, fmt.Sprint("timed out ", a.GetRetryState(), bare(a.GetFailure())))
		case enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
			all = append(all, "canceled")
		}
	}
	return all
}

// passes is an interceptor that hands everything on, on both sides.
type passes struct{ sdkinterceptor.InterceptorBase }

func (*passes) InterceptActivity(_ context.Context, next sdkinterceptor.ActivityInboundInterceptor) sdkinterceptor.ActivityInboundInterceptor {
	return &passesInbound{sdkinterceptor.ActivityInboundInterceptorBase{Next: next}}
}

type passesInbound struct {
	sdkinterceptor.ActivityInboundInterceptorBase
}

type passedKey struct{}

func (p *passesInbound) ExecuteActivity(ctx context.Context, in *sdkinterceptor.ExecuteActivityInput) (any, error) {
	return p.Next.ExecuteActivity(context.WithValue(ctx, passedKey{}, true), in)
}
