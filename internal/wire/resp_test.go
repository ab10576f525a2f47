package wire_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/effectonce/effectonce/internal/itest"
	"github.com/effectonce/effectonce/internal/wire"
)

// store is a Valkey server, past the proxy and through it.
type store struct {
	*wire.Proxy
	t      *testing.T
	direct valkey.Client
	client valkey.Client
}

func newStore(t *testing.T, configure ...func(*valkey.ClientOption)) *store {
	t.Helper()
	address := itest.Valkey(t)
	proxy, err := wire.Listen(context.Background(), address, wire.RESP)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	s := &store{Proxy: proxy, t: t, direct: dial(t, address), client: dial(t, proxy.Addr(), configure...)}
	s.ResetStats()
	s.Record(true)
	return s
}

func dial(t *testing.T, address string, configure ...func(*valkey.ClientOption)) valkey.Client {
	t.Helper()
	options := valkey.ClientOption{InitAddress: []string{address}, ForceSingleClient: true, ClientName: "tester"}
	for _, change := range configure {
		change(&options)
	}
	client, err := valkey.NewClient(options)
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func (s *store) set(key string) error {
	return s.client.Do(s.t.Context(), s.client.B().Set().Key(key).Value("v").Px(time.Minute).Build()).Error()
}

// has tells whether the server has the key.
func (s *store) has(key string) bool {
	s.t.Helper()
	n, err := s.direct.Do(s.t.Context(), s.direct.B().Exists().Key(key).Build()).AsInt64()
	require.NoError(s.t, err)
	return n == 1
}

func TestRESPPipelineIsOneRoundTrip(t *testing.T) {
	t.Parallel()
	for name, configure := range map[string]func(*valkey.ClientOption){
		"RESP3":     func(*valkey.ClientOption) {},
		"RESP2":     func(o *valkey.ClientOption) { o.AlwaysRESP2, o.DisableCache = true, true },
		"pipelined": func(o *valkey.ClientOption) { o.AlwaysPipelining = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t, configure)
			key := "wire:" + rand.Text()
			answers := s.client.DoMulti(t.Context(),
				s.client.B().Set().Key(key).Value("v").Nx().Get().Px(time.Minute).Build(),
				s.client.B().Pttl().Key(key).Build())
			require.True(t, valkey.IsValkeyNil(answers[0].Error()))
			require.NoError(t, answers[1].Error())
			stats := s.Stats()
			assert.Equal(t, 1, stats.RoundTrips)
			assert.Equal(t, 2, stats.Executed)
			assert.Equal(t, []wire.Call{{Name: "SET", Key: key, Args: 6}, {Name: "PTTL", Key: key, Args: 1}}, stats.Commands)
			require.NoError(t, s.set(key))
			assert.Equal(t, 2, s.Stats().RoundTrips)
			for _, conn := range s.Conns() { // valkey-go opens several
				assert.Equal(t, "tester", conn.App)
			}
		})
	}
}

func TestRESPSetUpIsCountedApart(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	dial(t, s.Addr())
	stats := s.Stats()
	assert.Equal(t, 1, stats.Connections)
	assert.Positive(t, stats.SetUp)
	assert.Zero(t, stats.Executed)
	assert.Zero(t, stats.RoundTrips)
	assert.Empty(t, stats.Commands)
}

func TestRESPKeyOfAScript(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	key := "wire:" + rand.Text()
	script := s.client.B().Eval().Script("return redis.call('SET', KEYS[1], ARGV[1])").Numkeys(1).Key(key).Arg("v").Build()
	rule := s.Arm(wire.Rule{Match: wire.Command("eval", key)})
	require.NoError(t, s.client.Do(t.Context(), script).Error())
	comes(t, rule.Fired())
	assert.Equal(t, []wire.Call{{Name: "EVAL", Key: key, Args: 4}}, s.Stats().Commands)
}

func TestRESPFaults(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		match  func(key string) wire.Match
		action wire.Action
		there  bool
	}{
		"CutBefore":         {func(key string) wire.Match { return wire.Command("SET", key) }, wire.CutBefore, false},
		"CutAfter":          {func(key string) wire.Match { return wire.Command("SET", key) }, wire.CutAfter, true},
		"answer cut before": {func(key string) wire.Match { return wire.AnswerTo(wire.Command("SET", key)) }, wire.CutBefore, true},
		"tag cut before": {func(key string) wire.Match { // a new connection's set-up is answered +OK too
			return func(e *wire.Event) bool { return wire.Tag("+OK")(e) && e.Key == key }
		}, wire.CutBefore, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStore(t)
			key := "wire:" + rand.Text()
			rule := s.Arm(wire.Rule{Match: c.match(key), Action: c.action})
			require.Error(t, s.set(key))
			comes(t, rule.Fired())
			comes(t, rule.Settled())
			assert.Equal(t, c.there, s.has(key))
		})
	}
}

func TestRESPCutInsideAPipeline(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	one, two := "wire:"+rand.Text(), "wire:"+rand.Text()
	rule := s.Arm(wire.Rule{Match: wire.Command("", two), Action: wire.CutBefore})
	answers := s.client.DoMulti(t.Context(),
		s.client.B().Set().Key(one).Value("v").Px(time.Minute).Build(),
		s.client.B().Set().Key(two).Value("v").Px(time.Minute).Build())
	require.Error(t, answers[1].Error())
	comes(t, rule.Settled())
	assert.True(t, s.has(one))
	assert.False(t, s.has(two))
}

func TestRESPHold(t *testing.T) {
	t.Parallel()
	for action, there := range map[wire.Action]bool{wire.HoldServer: true, wire.HoldClient: false} {
		s := newStore(t)
		key := "wire:" + rand.Text()
		rule := s.Arm(wire.Rule{Match: wire.Command("SET", key), Action: action})
		done := async(func() error { return s.set(key) })
		comes(t, rule.Fired())
		if there {
			comes(t, rule.Settled())
		}
		assert.Equal(t, there, s.has(key))
		pending(t, done)
		rule.Release()
		require.NoError(t, comes(t, done))
	}
}

func TestRESPErrorIsAnAnswer(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	codes := make(chan string, 1)
	s.Observe(func(e *wire.Event) {
		if e.Kind == wire.KindAnswer && e.Code != "" {
			codes <- e.Command + " " + e.Code
		}
	})
	require.Error(t, s.client.Do(t.Context(), s.client.B().Arbitrary("NONSENSE").Build()).Error())
	assert.Equal(t, "NONSENSE ERR", comes(t, codes))
}

func TestRawForwards(t *testing.T) {
	t.Parallel()
	proxy, err := wire.Listen(t.Context(), itest.Valkey(t), wire.Raw)
	require.NoError(t, err)
	defer proxy.Close()
	client := dial(t, proxy.Addr())
	require.NoError(t, client.Do(t.Context(), client.B().Ping().Build()).Error())
	assert.Equal(t, wire.Stats{Connections: 1}, proxy.Stats())
}
