package interceptor_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/effectonce/effectonce/internal/ledgertest"
)

// sealed is a codec that encrypts with the newest of its keys and opens with
// any: never the same bytes twice.
type sealed struct {
	mu   sync.Mutex
	keys [][]byte
}

func (s *sealed) rotate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	s.keys = append(s.keys, key)
}

func (s *sealed) aead(n int) (cipher.AEAD, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	block, err := aes.NewCipher(s.keys[n])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

func (s *sealed) Encode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		plain, err := proto.Marshal(p)
		if err != nil {
			return nil, err
		}
		n := len(s.keys) - 1
		aead, err := s.aead(n)
		if err != nil {
			return nil, err
		}
		nonce := make([]byte, aead.NonceSize())
		_, _ = rand.Read(nonce)
		out[i] = &commonpb.Payload{
			Metadata: map[string][]byte{"encoding": []byte("binary/sealed"), "key": {byte(n)}}, //nolint:gosec // a few keys
			Data:     aead.Seal(nonce, nonce, plain, nil),
		}
	}
	return out, nil
}

func (s *sealed) Decode(payloads []*commonpb.Payload) ([]*commonpb.Payload, error) {
	out := make([]*commonpb.Payload, len(payloads))
	for i, p := range payloads {
		if string(p.GetMetadata()["encoding"]) != "binary/sealed" {
			out[i] = p
			continue
		}
		aead, err := s.aead(int(p.GetMetadata()["key"][0]))
		if err != nil {
			return nil, err
		}
		plain, err := aead.Open(nil, p.GetData()[:aead.NonceSize()], p.GetData()[aead.NonceSize():], nil)
		if err != nil {
			return nil, err
		}
		out[i] = &commonpb.Payload{}
		if err := proto.Unmarshal(plain, out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// stored is all that both stores hold of the test's executions.
func (b *bundle) stored(t *testing.T) (all []byte) {
	t.Helper()
	require.NoError(t, b.pool.QueryRow(t.Context(), `SELECT coalesce(string_agg(decode(coalesce(outcome->>'d', ''), 'base64') || coalesce(p.payload, ''), ''), '')
FROM platform_idempotency_keys k LEFT JOIN platform_idempotency_payloads p ON p.id = k.id`).Scan(&all))
	b.settle(t)
	c, err := valkey.NewClient(b.options.Gate.Valkey)
	require.NoError(t, err)
	defer c.Close()
	keys, err := c.Do(t.Context(), c.B().Keys().Pattern(b.prefix+"*").Build()).AsStrSlice()
	require.NoError(t, err)
	require.NotEmpty(t, keys)
	for _, key := range keys {
		held, err := c.Do(t.Context(), c.B().Get().Key(key).Build()).AsBytes()
		require.NoError(t, err)
		all = append(all, held...)
	}
	return all
}

// TestKeyRotationBetweenExecutionAndReplay: only ciphertext is in both stores,
// and a replay is what was first encrypted, under the old key.
func TestKeyRotationBetweenExecutionAndReplay(t *testing.T) {
	t.Parallel()
	for _, size := range []int{10, 10_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			codec := &sealed{}
			codec.rotate()
			secret := strings.Repeat("secret", size)
			b := setup(t, func(_ *bundle, o *client.Options) {
				l := newLoses(1)
				l.then = func(context.Context) { codec.rotate() }
				o.Interceptors = append(o.Interceptors, losingOnce(l))
				o.DataConverter = converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), codec)
			})
			b.worker(t, func(w worker.Worker) {
				registerOne(w)
				w.RegisterActivityWithOptions(func(ctx context.Context) (string, error) {
					return secret, ledgertest.Effect(ctx, "a")
				}, name("tells"))
			})
			run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, one, withDefaults(workflow.ActivityOptions{}), "tells", []any{})
			require.NoError(t, err)
			var got string
			require.NoError(t, run.Get(t.Context(), &got))
			require.Equal(t, secret, got)
			require.Equal(t, 1, b.effects(t, "a"))
			p := result(t, b.client, run)
			require.Equal(t, []byte{0}, p.GetMetadata()["key"], "what Temporal got is what was kept, under the old key")
			stored := b.stored(t)
			require.NotContains(t, string(stored), "secret")
			require.True(t, bytes.Contains(stored, p.GetData()), "byte for byte")
		})
	}
}

// result is the payload of the activity that completed in that run.
func result(t *testing.T, c client.Client, run client.WorkflowRun) *commonpb.Payload {
	t.Helper()
	history := c.GetWorkflowHistory(t.Context(), run.GetID(), run.GetRunID(), false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for history.HasNext() {
		e, err := history.Next()
		require.NoError(t, err)
		if a := e.GetActivityTaskCompletedEventAttributes(); a != nil {
			require.Len(t, a.GetResult().GetPayloads(), 1)
			return a.GetResult().GetPayloads()[0]
		}
	}
	require.Fail(t, "no activity has completed")
	return nil
}

// TestResultsInEveryEncodingAreReplayedByteForByte: what Temporal gets of the
// second delivery is what it would have got of the first.
func TestResultsInEveryEncodingAreReplayedByteForByte(t *testing.T) {
	t.Parallel()
	proto3 := &commonpb.WorkflowType{Name: "a proto message"}
	for n, value := range map[string]any{
		"text": "a\u0000b € \U0001F600", "empty text": "", "integer": int64(1<<62 + 1), "negative": int64(-1<<53 - 1), "float": 1e300,
		"bytes": []byte{0, 1, 255}, "empty bytes": []byte{}, "list": []any{"x", 1 << 54, nil}, "map": map[string]int64{"b": 2, "a": 1<<53 + 1},
		"proto": proto3, "nil in an interface": nil, "inline at the limit": strings.Repeat("x", 2900), "side table": strings.Repeat("y", 500_000),
	} {
		t.Run(n, func(t *testing.T) {
			t.Parallel()
			b := setup(t, losing(1))
			b.worker(t, func(w worker.Worker) {
				registerOne(w)
				w.RegisterActivityWithOptions(func(ctx context.Context) (any, error) { return value, ledgertest.Effect(ctx, "a") }, name("tells"))
			})
			run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, one, withDefaults(workflow.ActivityOptions{}), "tells", []any{})
			require.NoError(t, err)
			if err := run.Get(t.Context(), nil); n != "proto" { // which the workflow can't read into an interface
				require.NoError(t, err)
			}
			require.Equal(t, 1, b.effects(t, "a"))
			require.Len(t, b.outcomes(), 2)
			if value == nil {
				return // no payload: TestATransparentGuest
			}
			want, err := converter.GetDefaultDataConverter().ToPayload(value)
			require.NoError(t, err)
			require.True(t, proto.Equal(want, result(t, b.client, run)))
		})
	}
}

// greets is a converter that knows the activity's context and Temporal's
// serialization context.
type greets struct {
	converter.DataConverter
	who string
}

type greetKey struct{}

func (g greets) WithSerializationContext(c converter.SerializationContext) converter.DataConverter {
	if a, ok := c.(converter.ActivitySerializationContext); ok {
		g.who += a.ActivityType + "/" + a.WorkflowType + "/"
	}
	return g
}

func (g greets) WithContext(ctx context.Context) converter.DataConverter {
	who, _ := ctx.Value(greetKey{}).(string)
	g.who += who
	return g
}

func (g greets) WithWorkflowContext(workflow.Context) converter.DataConverter { return g }

func (g greets) ToPayload(v any) (*commonpb.Payload, error) {
	p, err := g.DataConverter.ToPayload(v)
	if err == nil && p != nil {
		p.Metadata["who"] = []byte(g.who)
	}
	return p, err
}

func (g greets) ToPayloads(values ...any) (*commonpb.Payloads, error) {
	all := &commonpb.Payloads{}
	for _, v := range values {
		p, err := g.ToPayload(v)
		if err != nil {
			return nil, err
		}
		all.Payloads = append(all.Payloads, p)
	}
	return all, nil
}

// TestContextAwareConverters: the result is encoded as the SDK would have done.
func TestContextAwareConverters(t *testing.T) {
	t.Parallel()
	who := func(b *bundle) string {
		b.worker(t, func(w worker.Worker) {
			registerOne(w)
			w.RegisterActivityWithOptions(does, name("does"))
		}, func(o *worker.Options) {
			o.BackgroundActivityContext = context.WithValue(context.Background(), greetKey{}, "the worker")
		})
		run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, one, withDefaults(workflow.ActivityOptions{}), "does", []any{"a"})
		require.NoError(t, err)
		require.NoError(t, run.Get(t.Context(), nil))
		return string(result(t, b.client, run).GetMetadata()["who"])
	}
	with := func(_ *bundle, o *client.Options) {
		o.DataConverter = greets{DataConverter: converter.GetDefaultDataConverter()}
	}
	for n, lost := range map[string]change{"fresh": func(*bundle, *client.Options) {}, "replayed": losing(1)} {
		b := setup(t, lost, with)
		got := who(b)
		require.Contains(t, got, "the worker", n)
		require.Equal(t, 1, b.effects(t, "a"))
		require.Contains(t, []string{"does/one/the worker", "the worker"}, got)
	}
}

// hides is a failure converter whose failures hold ciphertext.
type hides struct{ converter.FailureConverter }

func hiding(codec converter.PayloadCodec) change {
	return func(_ *bundle, o *client.Options) {
		o.DataConverter = converter.NewCodecDataConverter(converter.GetDefaultDataConverter(), codec)
		o.FailureConverter = hides{temporal.NewDefaultFailureConverter(temporal.DefaultFailureConverterOptions{
			DataConverter: o.DataConverter, EncodeCommonAttributes: true,
		})}
	}
}

func (h hides) ErrorToFailure(err error) *failurepb.Failure {
	return h.FailureConverter.ErrorToFailure(err)
}

// TestEncryptedFailuresAreReplayed: chain and details, and both stores hold
// ciphertext only.
func TestEncryptedFailuresAreReplayed(t *testing.T) {
	t.Parallel()
	codec := &sealed{}
	codec.rotate()
	var runs atomic.Int32
	b := setup(t, losing(1), hiding(codec))
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) error {
			runs.Add(1)
			if err := ledgertest.Effect(ctx, "a"); err != nil {
				return err
			}
			return temporal.NewNonRetryableApplicationError("secret message", "Type",
				fmt.Errorf("secret wrap: %w", errors.New("secret cause")), "secret detail")
		}, name("fails"))
	})
	_, err := b.call(t, workflow.ActivityOptions{}, "fails")
	e := b.appError(t, err)
	require.Equal(t, "secret message", e.Message())
	require.True(t, e.NonRetryable())
	var detail string
	require.NoError(t, e.Details(&detail))
	require.Equal(t, "secret detail", detail)
	require.ErrorContains(t, e.Unwrap(), "secret wrap: secret cause")
	require.ErrorContains(t, errors.Unwrap(e.Unwrap()), "secret cause")
	require.Equal(t, int32(1), runs.Load())
	require.Zero(t, b.effects(t, "a"))
	require.NotContains(t, string(b.stored(t)), "secret")
}

// TestAnInnerInterceptorsPayloadsAreKeptAsTheyAre.
func TestAnInnerInterceptorsPayloadsAreKeptAsTheyAre(t *testing.T) {
	t.Parallel()
	b := setup(t, losing(1))
	want := &commonpb.Payloads{Payloads: []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte("json/plain"), "mine": {1}}, Data: []byte(`"x"`)}}}
	b.worker(t, func(w worker.Worker) {
		registerOne(w)
		w.RegisterActivityWithOptions(func(ctx context.Context) (*commonpb.Payloads, error) {
			return want, ledgertest.Effect(ctx, "a")
		}, activity.RegisterOptions{Name: "payloads"})
	})
	run, err := b.client.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{TaskQueue: b.queue}, one, withDefaults(workflow.ActivityOptions{}), "payloads", []any{})
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	require.True(t, proto.Equal(want.GetPayloads()[0], result(t, b.client, run)))
	require.Equal(t, 1, b.effects(t, "a"))
}
