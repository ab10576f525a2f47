package wire

import (
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// encode writes messages as pgx does.
func encode(t *testing.T, messages ...interface{ Encode([]byte) ([]byte, error) }) []byte {
	t.Helper()
	var data []byte
	for _, m := range messages {
		var err error
		data, err = m.Encode(data)
		require.NoError(t, err)
	}
	return data
}

// bursts decodes data that comes in pieces of this size.
func bursts(decoder clientDecoder, data []byte, piece int) (all []burst, left int) {
	from := 0
	for to := 0; to < len(data); {
		to = min(to+piece, len(data))
		for from < to {
			b, n := decoder.next(data[from:to], false)
			if n == 0 {
				break
			}
			b.data = data[from : from+n]
			from += n
			all = append(all, b)
		}
	}
	return all, len(data) - from
}

func TestPostgresClient(t *testing.T) {
	t.Parallel()
	parse := func(name, sql string) *pgproto3.Parse { return &pgproto3.Parse{Name: name, Query: sql} }
	bind := func(portal, name string) *pgproto3.Bind {
		return &pgproto3.Bind{DestinationPortal: portal, PreparedStatement: name}
	}
	execute := func(portal string) *pgproto3.Execute { return &pgproto3.Execute{Portal: portal} }
	first := encode(t, parse("a", "insert"), parse("b", "commit"), &pgproto3.Describe{ObjectType: 'S', Name: "b"}, &pgproto3.Sync{})
	second := encode(t, bind("", "a"), execute(""), bind("p", "b"), execute("p"), &pgproto3.Sync{})
	third := encode(t, bind("", "b"), parse("c", "select"), bind("q", "c"), execute("q"), execute(""), &pgproto3.Flush{})
	fourth := encode(t, &pgproto3.Query{String: "begin; insert;"})
	fifth := encode(t, &pgproto3.Close{ObjectType: 'S', Name: "b"}, bind("", "b"), execute(""), &pgproto3.Sync{})
	data := append(append(append(append(append([]byte{}, first...), second...), third...), fourth...), fifth...)
	data = append(data, encode(t, &pgproto3.Terminate{})...)
	for _, piece := range []int{1, 2, 7, 50, len(data)} {
		all, left := bursts(&postgresClient{sql: map[string]string{}, portals: map[string]string{}}, data, piece)
		assert.Zero(t, left)
		require.Len(t, all, 6)
		assert.Empty(t, all[0].units, "a statement that is only parsed isn't executed")
		assert.Equal(t, 1, all[0].answers)
		commit := len(encode(t, bind("", "a"), execute("")))
		assert.Equal(t, []unit{
			{at: 0, end: commit, sql: "insert"},
			{at: commit, end: len(second) - 5, sql: "commit"},
		}, all[1].units)
		parsed := len(encode(t, bind("", "b")))
		assert.Equal(t, []unit{
			{at: parsed, end: len(third) - 5 - len(encode(t, execute(""))), sql: "select"},
			{at: 0, end: len(third) - 5, sql: "commit"},
		}, all[2].units)
		assert.True(t, all[2].flush)
		assert.Equal(t, []unit{{end: len(fourth), sql: "begin"}, {end: len(fourth), sql: "insert"}}, all[3].units)
		require.Len(t, all[4].units, 1)
		assert.Empty(t, all[4].units[0].sql, "a closed statement is forgotten")
		assert.True(t, all[5].quiet)
	}
}

func TestPostgresClientForgetsWhatIsDeallocated(t *testing.T) {
	t.Parallel()
	d := &postgresClient{sql: map[string]string{}, portals: map[string]string{}}
	data := encode(t, &pgproto3.Parse{Name: "a", Query: "x"}, &pgproto3.Sync{}, &pgproto3.Query{String: "deallocate all"})
	_, left := bursts(d, data, len(data))
	assert.Zero(t, left)
	assert.Empty(t, d.sql)
}

func TestWhatIsNoProtocolPasses(t *testing.T) {
	t.Parallel()
	nonsense := []byte("Q\x00\x00\x00\x01nonsense\n")
	for _, p := range []Protocol{Postgres, RESP} {
		client, server := decoders(p)
		data := nonsense
		if p == RESP {
			data = []byte("*1\r\n+nonsense\r\n")
		}
		_, n := client.next(data, false)
		assert.Equal(t, len(data), n)
		_, n = client.next([]byte("Q"), false)
		assert.Equal(t, 1, n)
		_, n = server.next(nonsense)
		assert.Equal(t, len(nonsense), n)
		_, n = server.next([]byte("Z"))
		assert.Equal(t, 1, n)
	}
}

func TestLastBytesPass(t *testing.T) {
	t.Parallel()
	d := &postgresClient{sql: map[string]string{}, portals: map[string]string{"": "commit"}}
	data := append(encode(t, &pgproto3.Execute{}), 'S', 0)
	b, n := d.next(data, false)
	assert.Zero(t, n, "%v", b)
	b, n = d.next(data, true)
	assert.Equal(t, len(data), n)
	require.Len(t, b.units, 1)
	assert.Equal(t, "commit", b.units[0].sql)
}

func TestFlushAndAnswerIsARoundTrip(t *testing.T) {
	t.Parallel()
	var a account
	a.begin()
	assert.False(t, a.request(burst{quiet: true}))
	a.answer(mark{ready: true})
	assert.True(t, a.request(burst{flush: true}))
	assert.False(t, a.request(burst{answers: 1}), "the flush wasn't waited for")
	a.heard()
	a.answer(mark{ready: true})
	assert.True(t, a.idle())
	assert.True(t, a.request(burst{flush: true}))
	a.heard()
	assert.True(t, a.request(burst{answers: 1}), "the flush was waited for")
	assert.False(t, a.request(burst{answers: 1}), "pipelined")
	a.answer(mark{ready: true})
	assert.False(t, a.idle())
	a.answer(mark{ready: true})
	a.answer(mark{ready: true}) // one that nobody asked for
	assert.True(t, a.idle())
	assert.False(t, a.request(burst{answers: 1, more: true}), "came with the one before")
}

func TestCopyWithASyncTooMany(t *testing.T) {
	t.Parallel()
	var a account
	assert.True(t, a.request(burst{units: []unit{{sql: "copy"}}, answers: 1}))
	a.answer(mark{copyIn: true})
	assert.False(t, a.request(burst{quiet: true}))
	assert.False(t, a.request(burst{answers: 1}))
	assert.Equal(t, "copy", a.answer(mark{answers: true}).sql)
	a.answer(mark{ready: true})
	assert.True(t, a.idle())
	assert.True(t, a.request(burst{units: []unit{{sql: "next"}}, answers: 1}))
	assert.Equal(t, "next", a.answer(mark{answers: true}).sql)
}

func TestErrorAnswersForTheRest(t *testing.T) {
	t.Parallel()
	var a account
	a.request(burst{units: []unit{{sql: "1"}, {sql: "2"}, {sql: "3"}}, answers: 1})
	a.request(burst{units: []unit{{sql: "4"}}, answers: 1})
	assert.Equal(t, "1", a.answer(mark{answers: true}).sql)
	assert.Equal(t, "2", a.answer(mark{answers: true}).sql)
	a.answer(mark{ready: true})
	assert.Equal(t, "4", a.answer(mark{answers: true}).sql)
}

func TestRespClient(t *testing.T) {
	t.Parallel()
	data := []byte("*3\r\n$3\r\nset\r\n$1\r\nk\r\n$0\r\n\r\n" + "PING\r\n" + "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n")
	all, left := bursts(&respClient{}, data, len(data))
	assert.Zero(t, left)
	require.Len(t, all, 1)
	units := all[0].units
	require.Len(t, units, 3)
	assert.Equal(t, "SET", units[0].command)
	assert.Equal(t, "k", units[0].key())
	assert.Len(t, units[0].args, 2)
	assert.True(t, units[1].setUp)
	assert.Zero(t, units[2].answers)
	assert.False(t, all[0].quiet)
	all, left = bursts(&respClient{}, data, 1)
	assert.Zero(t, left)
	assert.Len(t, all, 3)
}

func TestRespReplies(t *testing.T) {
	t.Parallel()
	for text, answers := range map[string]bool{
		"+OK\r\n": true, "-ERR no\r\n": true, ":1\r\n": true, "_\r\n": true, ",1.5\r\n": true, "#t\r\n": true, "(12\r\n": true,
		"$-1\r\n": true, "$3\r\nabc\r\n": true, "$0\r\n\r\n": true, "=7\r\ntxt:abc\r\n": true, "!3\r\nERR\r\n": true,
		"*-1\r\n": true, "*0\r\n": true, "*2\r\n:1\r\n*1\r\n$1\r\na\r\n": true, "~1\r\n:1\r\n": true,
		"%1\r\n+a\r\n:1\r\n": true, "|1\r\n+a\r\n:1\r\n+OK\r\n": true, ">2\r\n+x\r\n:1\r\n": false,
	} {
		for i := 1; i < len(text); i++ {
			assert.Zero(t, measure([]byte(text[:i])), "%q", text[:i])
		}
		assert.Equal(t, len(text), measure([]byte(text)), "%q", text)
		marks, n := (&respServer{}).next([]byte(text + "+"))
		assert.Equal(t, len(text), n)
		assert.Equal(t, answers, len(marks) == 1, "%q", text)
	}
	for _, text := range []string{"\r\n", "x\r\n", "$x\r\n", "*x\r\n", "*1\r\nx\r\n"} {
		assert.Negative(t, measure([]byte(text)), "%q", text)
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string][]string{
		"":                                  {""},
		" ;; ":                              {" ;; "},
		"-- ping":                           {"-- ping"},
		"select 1":                          {"select 1"},
		" select 1 ; -- done":               {"select 1"},
		"/* a /* b */ ; */ select 1; b":     {"select 1", "b"},
		"-- x;\nselect 1;commit":            {"select 1", "commit"},
		"select ';', \";\"; commit;":        {"select ';', \";\"", "commit"},
		"select 'it''s;'; commit":           {"select 'it''s;'", "commit"},
		`select E'\';'; commit`:             {`select E'\';'`, "commit"},
		`select '\'; commit`:                {`select '\'`, "commit"},
		"do $$ a; $$; do $x$ $$; $x$; end":  {"do $$ a; $$", "do $x$ $$; $x$", "end"},
		"select $1; select $2":              {"select $1", "select $2"},
		"select 'open; commit":              {"select 'open; commit"},
		"insert /* ; */ into t; /* e */ ;":  {"insert /* ; */ into t"},
		"select 1 --;":                      {"select 1 --;"},
		"select $a, $b; select '$a, $b;$a'": {"select $a, $b", "select '$a, $b;$a'"},
	} {
		assert.Equal(t, want, split(sql), "%q", sql)
	}
}

func FuzzDecoders(f *testing.F) {
	f.Add([]byte("Q\x00\x00\x00\x0aselect;\x00"))
	f.Add([]byte("*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"))
	f.Add([]byte(">1\r\n%1\r\n+a\r\n:1\r\n"))
	f.Add([]byte("select E'\\';$a$ /* -- \";"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, p := range []Protocol{Postgres, RESP} {
			client, server := decoders(p)
			for _, b := range first(bursts(client, data, 3)) {
				for i := range b.units {
					u := &b.units[i]
					assert.True(t, 0 <= u.at && u.at <= u.end && u.end <= len(b.data))
					_, _ = u.key(), u.name()
				}
			}
			marks, n := server.next(data)
			assert.LessOrEqual(t, n, len(data))
			for _, m := range marks {
				assert.True(t, 0 <= m.at && m.at < m.end && m.end <= n)
			}
		}
		split(string(data))
		_ = parameter(data, "application_name")
	})
}

func first[A, B any](a A, _ B) A { return a }
