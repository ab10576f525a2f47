package gate_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/servers"
	"github.com/effectonce/effectonce/internal/wire"
	"github.com/effectonce/effectonce/ledger"
)

func TestEveryFaultIsNamed(t *testing.T) {
	t.Parallel()
	_, err := gate.New(gate.Config{Valkey: valkey.ClientOption{ReplicaOnly: true}, Timeout: -1, Probe: time.Microsecond, MaxEntryBytes: -1, Queue: -1})
	for _, field := range []string{"Valkey.InitAddress", "Valkey.ReplicaOnly", "Timeout", "Probe", "MaxEntryBytes", "Queue"} {
		require.ErrorContains(t, err, "Config."+field)
	}
	_, err = gate.New(gate.Config{Valkey: valkey.ClientOption{InitAddress: []string{"localhost:1"}}})
	require.NoError(t, err)
	_, err = gate.NewRunner(gate.RunnerConfig{})
	require.ErrorContains(t, err, "RunnerConfig.Ledger")
}

// start starts a gate as a user would, and closes it when the test ends.
func start(t *testing.T, config gate.Config) (*gate.Gate, error) {
	t.Helper()
	g, err := gate.New(config)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close(context.WithoutCancel(t.Context()))) })
	return g, g.Start(t.Context())
}

// rights are what the gate needs, by what it says itself.
var rights = []string{"set", "get", "pttl", "del", "eval", "time"}

// TestRefusalsFailTheStart: the server answers, and would refuse for ever.
func TestRefusalsFailTheStart(t *testing.T) {
	t.Parallel()
	const password = "the-one-that-is-right"
	server := itest.PrivateValkey(t, servers.ValkeyOptions{Password: password})
	admin, err := valkey.NewClient(valkey.ClientOption{
		InitAddress: []string{server.Addr()}, Password: password, ForceSingleClient: true, DisableCache: true,
	})
	require.NoError(t, err)
	t.Cleanup(admin.Close)
	user := func(name string, rules ...string) valkey.ClientOption {
		require.NoError(t, admin.Do(t.Context(), admin.B().AclSetuser().Username(name).Rule("on", ">pw").Rule(rules...).Build()).Error())
		return valkey.ClientOption{Username: name, Password: "pw"}
	}
	all := "+" + strings.Join(rights, " +")
	type refusal struct {
		option valkey.ClientOption
		cure   string
	}
	refused := map[string]refusal{
		"no password":    {valkey.ClientOption{}, "Config.Valkey.Password"},
		"wrong password": {valkey.ClientOption{Password: "wrong-one"}, "Config.Valkey.Password"},
		"unknown user":   {valkey.ClientOption{Username: "nobody", Password: "wrong-one"}, "Config.Valkey.Username"},
		"other keys":     {user("keys", append(strings.Fields(all), "~other:*")...), "~app:*"},
	}
	for _, right := range rights {
		rules := append(strings.Fields(all), "~app:*", "-"+right)
		refused["without "+right] = refusal{user("without-"+right, rules...), "+" + right}
	}
	for name, c := range refused {
		for _, single := range []bool{true, false} {
			c.option.InitAddress, c.option.ForceSingleClient = []string{server.Addr()}, single
			_, err := start(t, gate.Config{Valkey: c.option, Prefix: "app:"})
			require.ErrorContains(t, err, c.cure, name)
			require.NotContains(t, err.Error(), "wrong-one", name)
		}
	}

	t.Log("with these rights and no others it starts, and works")
	option := user("enough", append(strings.Fields(all), "~app:*")...)
	option.InitAddress = []string{server.Addr()}
	g, err := start(t, gate.Config{Valkey: option, Prefix: "app:", Timeout: 20 * time.Second})
	require.NoError(t, err)
	mine, other := gate.NewToken(false, 1), gate.NewToken(false, 1)
	answer, err := g.Enter(t.Context(), "a", mine, time.Minute)
	require.NoError(t, err)
	require.Zero(t, answer)
	answer, err = g.Enter(t.Context(), "a", other, time.Minute)
	require.NoError(t, err)
	require.Equal(t, &mine, answer.Token)
	entry := gate.Entry{RowID: 1, Attempt: 1, Status: ledger.Completed, Outcome: outcome("x")}
	require.NoError(t, g.Publish("a", entry, time.Minute))
	g.Release("a", mine)
	require.NoError(t, g.Close(t.Context()))
	require.Zero(t, g.Dropped())
	held, err := admin.Do(t.Context(), admin.B().Get().Key("app:a").Build()).ToString()
	require.NoError(t, err)
	require.Equal(t, entry.Encode(), held)
}

// logged is what a person would read.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), text)
}

// TestARefusedConnectionStartsDegraded: and is made when the server is there.
func TestARefusedConnectionStartsDegraded(t *testing.T) {
	t.Parallel()
	for _, single := range []bool{true, false} {
		server := itest.PrivateValkey(t, servers.ValkeyOptions{})
		require.NoError(t, server.Kill())
		log := &logged{}
		b := setup(t, func(o *options) {
			o.valkey = server.Addr()
			o.gate = func(c *gate.Config) {
				c.Valkey.ForceSingleClient = single
				c.Probe = time.Millisecond
				c.Logger = slog.New(slog.NewTextHandler(log, nil))
			}
		})
		require.Equal(t, 1, log.count("gate away"))
		b.runs(t, business("a"), writes("a"), ledger.Executed)
		require.NotEmpty(t, b.attribute(t, gate.AttrDegraded).AsString())
		require.NoError(t, server.Restart(t.Context()))
		b.replayed(t, business("a"))
		require.Equal(t, 1, log.count("gate away"), "said once")
		require.Equal(t, 1, log.count("gate is back"))
	}
}

// TestWhatPassesStartsDegraded: the server answers and refuses, for a while.
func TestWhatPassesStartsDegraded(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"OOM":                   {"--maxmemory", "1", "--maxmemory-policy", "noeviction"},
		"READONLY":              {"--replicaof", "127.0.0.1 1"},
		"max number of clients": {"--maxclients", "1"},
	} {
		server := itest.PrivateValkey(t, servers.ValkeyOptions{Args: args})
		dial(t, server.Addr()) // is the one client
		log := &logged{}
		g, err := start(t, gate.Config{
			Valkey: valkey.ClientOption{InitAddress: []string{server.Addr()}, ClientSetInfo: valkey.DisableClientSetInfo},
			Probe:  time.Hour, Logger: slog.New(slog.NewTextHandler(log, nil)),
		})
		require.NoError(t, err, name)
		require.Equal(t, 1, log.count("gate away"), name)
		require.Equal(t, 1, log.count(name))
		_, err = g.Enter(t.Context(), "a", gate.NewToken(false, 1), time.Minute)
		require.ErrorIs(t, err, gate.ErrOpen)
	}
}

// TestABlackHoleAtTheStart: nothing answers; the gate starts degraded.
func TestABlackHoleAtTheStart(t *testing.T) {
	t.Parallel()
	for _, single := range []bool{true, false} {
		b := setup(t)
		b.resp.BlackHole()
		g := newGate(t, b.resp.Addr(), b.prefix, func(c *gate.Config) {
			c.Valkey.ForceSingleClient = single
			c.Valkey.Dialer.Timeout = 200 * time.Millisecond
			c.Probe = time.Millisecond
			c.Timeout = 100 * time.Millisecond
		})
		b.runner = b.newRunner(t, g)
		b.runs(t, business("a"), writes("a"), ledger.Executed)
		require.NoError(t, b.resp.Heal())
		b.replayed(t, business("a"))
	}
}

// TestARefusalLaterIsSaidOnce: the server was away at the start, and refuses
// when it is back.
func TestARefusalLaterIsSaidOnce(t *testing.T) {
	t.Parallel()
	server := itest.PrivateValkey(t, servers.ValkeyOptions{Password: "right"})
	require.NoError(t, server.Kill())
	log := &logged{}
	b := setup(t, func(o *options) {
		o.valkey = server.Addr()
		o.gate = func(c *gate.Config) {
			c.Valkey.Password = "wrong"
			c.Probe = time.Millisecond
			c.Logger = slog.New(slog.NewTextHandler(log, nil))
		}
	})
	require.NoError(t, server.Restart(t.Context()))
	for i := 0; log.count("Config.Valkey.Password") == 0; i++ {
		b.runs(t, derived("a", int32(2+i)), writes("a"), map[bool]ledger.Source{true: ledger.Executed, false: ledger.LedgerReplay}[i == 0])
	}
	for range 20 {
		b.runs(t, derived("a", 2), never(t), ledger.LedgerReplay)
	}
	require.Equal(t, 1, log.count("Config.Valkey.Password"))
	require.Zero(t, log.count("wrong"))
}

// TestAStartThatIsGivenUp leaves nothing, and says why.
func TestAStartThatIsGivenUp(t *testing.T) {
	t.Parallel()
	proxy, err := wire.Listen(t.Context(), itest.Valkey(t), wire.RESP)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	proxy.BlackHole()
	g, err := gate.New(gate.Config{Valkey: valkey.ClientOption{InitAddress: []string{proxy.Addr()}}})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, g.Start(ctx), context.DeadlineExceeded)
	require.NoError(t, proxy.Heal())
	require.NoError(t, g.Close(t.Context()))
}

// TestCloseDrains what is queued, and refuses what comes later.
func TestCloseDrains(t *testing.T) {
	t.Parallel()
	b := setup(t)
	g := newGate(t, b.resp.Addr(), b.prefix, func(*gate.Config) {})
	require.NoError(t, g.Start(t.Context()), "once more is no harm")
	const many = 1000
	for i := range many {
		require.NoError(t, g.Publish("drained", gate.Entry{
			RowID: int64(i + 1), Attempt: 1, Status: ledger.Completed, Outcome: outcome("x"),
		}, time.Minute))
	}
	require.NoError(t, g.Close(t.Context()))
	require.NoError(t, g.Close(t.Context()), "once more is no harm")
	require.Zero(t, g.Dropped())
	// The proxy hears of it a little later.
	require.Eventually(t, func() bool { return len(b.resp.Conns()) == 1 }, time.Minute, time.Millisecond, "the other gate's")
	held, err := b.direct.Do(t.Context(), b.direct.B().Get().Key(b.prefix+"drained").Build()).AsBytes()
	require.NoError(t, err)
	_, entry, err := gate.Decode(held)
	require.NoError(t, err)
	require.EqualValues(t, many, entry.RowID)
	require.Less(t, b.resp.Stats().RoundTrips, many/10, "many in one round trip")

	require.Error(t, g.Publish("late", gate.Entry{}, time.Minute))
	require.EqualValues(t, 1, g.Dropped())
	_, err = g.Enter(t.Context(), "late", gate.NewToken(false, 1), time.Minute)
	require.Error(t, err)
	require.ErrorContains(t, g.Start(t.Context()), "closed")
}

// TestCloseIsBounded: by its context, though the server is silent; what is left
// then ends by itself.
func TestCloseIsBounded(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *options) { o.gate = func(c *gate.Config) { c.Timeout = 0 } })
	b.resp.BlackHole()
	require.NoError(t, b.gate.Publish("a", gate.Entry{RowID: 1, Attempt: 1}, time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, b.gate.Close(ctx), context.Canceled)
	require.NoError(t, b.gate.Close(t.Context()), "the silent server is given up")
	require.Positive(t, b.gate.Dropped())
}

// TestAFullQueueDrops, and the ledger replays.
func TestAFullQueueDrops(t *testing.T) {
	t.Parallel()
	b := setup(t, func(o *options) { o.gate = func(c *gate.Config) { c.Queue = 1 } })
	held := b.resp.Arm(wire.Rule{Match: wire.Command("EVAL", ""), Action: wire.HoldClient})
	b.gate.Release("busy", gate.NewToken(false, 1))
	<-held.Fired()
	b.gate.Release("fills", gate.NewToken(false, 1))
	r := b.runs(t, derived("a", 1), writes("a"), ledger.Executed)
	require.Equal(t, []string{"effectonce.copy_failed"}, b.events(t))
	require.EqualValues(t, 3, b.gate.Dropped(), "the mark, the copy and the release")
	sent := b.resp.Arm(wire.Rule{Match: wire.AnswerTo(wire.Command("EVAL", b.prefix+"fills"))})
	held.Release()
	<-sent.Fired()
	require.Equal(t, r.RowID, b.runs(t, derived("a", 2), never(t), ledger.LedgerReplay).RowID)
}
