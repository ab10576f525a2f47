package gate_test

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/ledgertest"
	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/ledger"
)

func TestMain(m *testing.M) {
	if os.Getenv(crashEnv) != "" {
		os.Exit(crasher())
	}
	os.Exit(itest.Main(m))
}

// bundle is what a test has: a database and a prefix of its own, a runner whose
// two links go through proxies, and ways past them.
type bundle struct {
	link     string        // the DSN through the proxy
	pool     *pgxpool.Pool // past the proxy
	pg       *wire.Proxy
	store    *ledger.Store
	resp     *wire.Proxy
	prefix   string
	direct   valkey.Client // past the proxy; nil with a server that the test kills
	gate     *gate.Gate
	runner   *gate.Runner
	recorder *tracetest.SpanRecorder
	reader   *sdkmetric.ManualReader
	meters   *sdkmetric.MeterProvider
}

// options change what setup makes.
type options struct {
	valkey string // address; default: the shared server's
	dsn    string // default: a database of the test's own
	prefix string
	gate   func(*gate.Config)
}

func setup(t *testing.T, change ...func(*options)) *bundle {
	t.Helper()
	o := options{prefix: "test:" + rand.Text() + ":", gate: func(*gate.Config) {}}
	for _, f := range change {
		f(&o)
	}
	shared := o.valkey == ""
	if shared {
		o.valkey = itest.Valkey(t)
	}
	if o.dsn == "" {
		o.dsn = ledgertest.Database(t)
	}
	b := &bundle{pool: itest.Pool(t, o.dsn), prefix: o.prefix, recorder: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	b.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader))
	if shared {
		b.direct = dial(t, o.valkey)
	}
	var err error
	b.pg, b.link, err = wire.Through(context.WithoutCancel(t.Context()), o.dsn)
	require.NoError(t, err)
	t.Cleanup(b.pg.Close)
	b.store = ledgertest.Store(t, itest.Pool(t, b.link), func(c *ledger.Config) {
		c.FinishTimeout, c.MeterProvider = 30*time.Second, b.meters
		c.Limits.Timeout = -1 // a commit in doubt is asked for until the deadline
	})
	b.resp, err = wire.Listen(context.WithoutCancel(t.Context()), o.valkey, wire.RESP)
	require.NoError(t, err)
	t.Cleanup(b.resp.Close)
	b.gate = newGate(t, b.resp.Addr(), b.prefix, func(c *gate.Config) {
		c.MeterProvider = b.meters
		o.gate(c)
	})
	b.runner = b.newRunner(t, b.gate)
	return b
}

// newGate starts a gate that is closed when the test ends.
func newGate(t *testing.T, address, prefix string, change func(*gate.Config)) *gate.Gate {
	t.Helper()
	config := gate.Config{
		Valkey: valkey.ClientOption{InitAddress: []string{address}},
		Prefix: prefix,
		// A loaded machine must not look like a dead server.
		Timeout: 20 * time.Second,
	}
	change(&config)
	g, err := gate.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.WithoutCancel(t.Context()))) })
	require.NoError(t, g.Start(t.Context()))
	return g
}

func (b *bundle) newRunner(t *testing.T, cache gate.Cache) *gate.Runner {
	t.Helper()
	r, err := gate.NewRunner(gate.RunnerConfig{
		Ledger: b.store, Gate: cache, MeterProvider: b.meters,
		TracerProvider: trace.NewTracerProvider(trace.WithSpanProcessor(b.recorder)),
	})
	require.NoError(t, err)
	return r
}

func dial(t *testing.T, address string) valkey.Client {
	t.Helper()
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{address}, ForceSingleClient: true, DisableCache: true})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

// business is a delivery of a key that the caller names.
func business(name string) gate.Request {
	return gate.Request{
		Request: ledger.Request{
			Key:         ledger.Key(sha256.Sum256([]byte(name))),
			Fingerprint: ledger.Fingerprint(sha256.Sum256([]byte("request of " + name))),
			Operation:   "test",
			Wait:        -1,
			Failure: func(err error) ledger.Failure {
				status := ledger.FailedRetryable
				if errors.Is(err, errPermanent) {
					status = ledger.FailedPermanent
				}
				return ledger.Failure{Status: status, Outcome: outcome(err.Error())}
			},
		},
		Delivery: 1,
		Lease:    time.Minute,
	}
}

// derived is a delivery of a Temporal execution's key.
func derived(name string, delivery int32) gate.Request {
	req := business(name)
	req.Derived, req.Delivery, req.Fresh = true, delivery, delivery == 1
	return req
}

// patient makes a duplicate wait, longer than any test takes.
func patient(req gate.Request) gate.Request {
	req.Wait = time.Minute
	return req
}

var (
	errBody      = errors.New("the body's own error")
	errPermanent = errors.New("a permanent one")
)

func outcome(text string) ledger.Outcome {
	return ledger.Outcome{Encoding: "test/1", Data: []byte(text)}
}

// writes is a body that has one effect.
func writes(name string) ledger.Body {
	return func(ctx context.Context) (ledger.Outcome, error) {
		if err := ledgertest.Effect(ctx, name); err != nil {
			return ledger.Outcome{}, err
		}
		return outcome("did " + name), nil
	}
}

func fails(err error) ledger.Body {
	return func(ctx context.Context) (ledger.Outcome, error) {
		return ledger.Outcome{}, errors.Join(ledgertest.Effect(ctx, "failed"), err)
	}
}

func never(t *testing.T) ledger.Body {
	return func(context.Context) (ledger.Outcome, error) {
		t.Error("the body ran")
		return ledger.Outcome{}, errors.New("the body ran")
	}
}

// runs executes, and requires the result to come from there.
func (b *bundle) runs(t *testing.T, req gate.Request, body ledger.Body, from ledger.Source) ledger.Result {
	t.Helper()
	r, err := b.runner.Execute(t.Context(), req, body)
	require.NoError(t, err)
	require.Equal(t, from, r.Source)
	return r
}

func (b *bundle) effects(t *testing.T, name string) int {
	t.Helper()
	return ledgertest.Effects(t, b.pool, name)
}

// name is the request's key at the gate, without the prefix.
func (b *bundle) name(t *testing.T, req gate.Request) string {
	t.Helper()
	identity, err := b.store.Identity(t.Context())
	require.NoError(t, err)
	return identity.String() + "/" + req.Owner.String() + "/" + req.Key.String()
}

// put puts something at the gate behind its back.
func (b *bundle) put(t *testing.T, req gate.Request, value string, life time.Duration) {
	t.Helper()
	require.NoError(t, b.direct.Do(t.Context(),
		b.direct.B().Set().Key(b.prefix+b.name(t, req)).Value(value).Px(life).Build()).Error())
}

// stands is what stands at the gate, and for how long.
func (b *bundle) stands(t *testing.T, req gate.Request) (*gate.Token, *gate.Entry, time.Duration) {
	t.Helper()
	key := b.prefix + b.name(t, req)
	replies := b.direct.DoMulti(t.Context(), b.direct.B().Get().Key(key).Build(), b.direct.B().Pttl().Key(key).Build())
	held, err := replies[0].AsBytes()
	if valkey.IsValkeyNil(err) {
		return nil, nil, 0
	}
	require.NoError(t, err)
	left, err := replies[1].AsInt64()
	require.NoError(t, err)
	token, entry, err := gate.Decode(held)
	require.NoError(t, err)
	return token, entry, time.Duration(left) * time.Millisecond
}

// settle returns when the server has answered all that was queued for it.
func (b *bundle) settle(t *testing.T) {
	t.Helper()
	name := "settle/" + rand.Text()
	last := b.resp.Arm(wire.Rule{Match: wire.AnswerTo(wire.Command("EVAL", b.prefix+name))})
	b.gate.Release(name, gate.NewToken(false, 1))
	<-last.Fired()
}

// quiet waits for the ledger's clean-up off the caller's path, then forgets what
// was counted on both wires.
func (b *bundle) quiet(t *testing.T) {
	t.Helper()
	b.settle(t)
	for _, p := range []*wire.Proxy{b.pg, b.resp} {
		p.Record(true)
		p.ResetStats()
	}
}

// costs is what was counted: Valkey's questions that the caller waited for, and
// PostgreSQL's round trips.
func (b *bundle) costs() (questions, postgres int) {
	for _, c := range b.resp.Stats().Commands {
		if c.Name == "PTTL" { // each question ends with one
			questions++
		}
	}
	return questions, b.pg.Stats().RoundTrips
}
