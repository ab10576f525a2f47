package wire

import (
	"bytes"
	"net"
	"sync"
)

// session is one connection: two links, and two pumps that read into them.
type session struct {
	proxy  *Proxy
	id     uint64
	client net.Conn
	server net.Conn // set before the pumps start
	up     *link    // to the server
	down   *link    // to the client
	hole   gate
	done   chan struct{} // closed when the session is over

	mu      sync.Mutex
	app     string
	ready   bool // has said who it is
	over    bool
	parting bool   // the client is cut: the session ends when the server has answered
	struck  bool   // a fault has happened to it
	key     string // of its CancelRequests
	account account
	fires   []fire

	cutting *outcome // an answer's CutAfter, to be done at its burst's end; the server's pump alone uses it
}

// fire is a rule that has fired and isn't settled yet.
type fire struct {
	armed *Armed
	atEnd bool // settles only with the session
}

func newSession(p *Proxy, client net.Conn) *session {
	return &session{proxy: p, id: p.numbers.Add(1), client: client, done: make(chan struct{})}
}

// serve works until both sides are closed.
func (s *session) serve() {
	defer s.settle(true)
	defer s.abort(false)
	if !s.pass() {
		return
	}
	hello, err := s.greet()
	if err != nil || hello.cancel && s.proxy.struck(hello.key) || !s.pass() || !s.connect() {
		return
	}
	client, server := decoders(s.proxy.protocol)
	if hello.cancel {
		client, server = rawClient{}, rawServer{}
		s.proxy.counters.add(func(c *Stats) { c.Cancels++ })
	} else {
		s.proxy.counters.add(func(c *Stats) { c.Connections++ })
		if s.proxy.protocol == Postgres {
			s.account.begin()
		}
		if s.announce(hello.app) {
			return
		}
	}
	s.up.send(hello.data, 0)

	var work sync.WaitGroup
	start := func(what func()) {
		work.Add(1)
		go func() {
			defer work.Done()
			what()
		}()
	}
	start(func() {
		s.up.run()
		closeWrite(s.server)
	})
	start(func() {
		s.down.run()
		s.abort(false)
	})
	start(func() {
		s.pump(s.server, func(buf []byte, _ bool, _ bool) (int, bool) { return s.fromServer(server, buf) })
		_ = s.server.Close()
		s.down.finish()
	})
	s.pump(s.client, func(buf []byte, more, last bool) (int, bool) { return s.fromClient(client, buf, more, last) })
	if !s.isParting() {
		s.up.finish()
	}
	work.Wait()
}

// connect dials the server and makes the links.
func (s *session) connect() bool {
	server, err := s.proxy.dial()
	if err != nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = server
	s.up, s.down = newLink(s, server), newLink(s, s.client)
	if s.over {
		_ = server.Close()
	}
	return !s.over
}

// announce tells that the connection has said who it is; true when that was
// its end.
func (s *session) announce(app string) bool {
	s.mu.Lock()
	s.app, s.ready = app, true
	s.mu.Unlock()
	if !s.proxy.watched() {
		return false
	}
	return s.carryOut([]outcome{s.judge(s.event(KindConnect))}, nil)
}

// pump reads until the connection ends or handle says so. Handle says how many
// of the bytes it has used; it gets the others again, with more behind them.
func (s *session) pump(from net.Conn, handle func(buf []byte, more, last bool) (int, bool)) {
	buf, have := make([]byte, 32<<10), 0
	more := false // the bytes left came in one piece with some that have been used
	for {
		if have == len(buf) {
			buf = append(buf, make([]byte, len(buf))...)
		}
		n, err := from.Read(buf[have:])
		have += n
		if !s.pass() {
			return
		}
		used, ok := 0, true
		if have > 0 {
			used, ok = handle(buf[:have], more, err != nil)
		}
		if err != nil || !ok {
			return
		}
		if used > 0 {
			more = used < have
		}
		have = copy(buf, buf[used:have])
	}
}

// pass waits while the connection is in a black hole; false if it is over.
func (s *session) pass() bool {
	return s.proxy.hole.pass(s.done) && s.hole.pass(s.done)
}

// await waits for c or for the session's end.
func (s *session) await(c <-chan struct{}) {
	select {
	case <-c:
	case <-s.done:
	}
}

// abort ends the session at once.
func (s *session) abort(reset bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	s.over = true
	close(s.done)
	for _, conn := range []net.Conn{s.client, s.server} {
		if conn == nil {
			continue
		}
		if reset {
			resets(conn)
		}
		_ = conn.Close()
	}
	if s.up != nil {
		s.up.stop()
		s.down.stop()
	}
}

// cutClient closes the client's side; what the server sends is thrown away.
func (s *session) cutClient(reset bool) {
	s.down.mute()
	if reset {
		resets(s.client)
	}
	_ = s.client.Close()
}

// endClient closes the client's side when it has got what was sent.
func (s *session) endClient(o outcome) {
	if o.reset() {
		resets(s.client)
	}
	s.down.finish()
	o.fired()
}

// part has the session end when the server has answered everything.
func (s *session) part() {
	s.mu.Lock()
	s.parting = true
	idle := s.account.idle()
	s.mu.Unlock()
	if idle {
		s.up.finish()
	}
}

// strike notes that a fault has happened: from now on the connection can't be
// cancelled.
func (s *session) strike() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.struck = true
}

// struck tells whether a fault has happened to the connection that a
// CancelRequest with this key is for.
func (p *Proxy) struck(key string) bool {
	for _, s := range p.open() {
		s.mu.Lock()
		is := s.struck && s.key == key
		s.mu.Unlock()
		if is {
			return true
		}
	}
	return false
}

func (s *session) isParting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parting
}

// watch notes a rule that has fired, to be settled later.
func (s *session) watch(a *Armed, atEnd bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fires = append(s.fires, fire{armed: a, atEnd: atEnd})
}

// settle signals the rules that have fired: all of them at the end.
func (s *session) settle(end bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var left []fire
	for _, f := range s.fires {
		if f.atEnd && !end {
			left = append(left, f)
			continue
		}
		signal(f.armed.settled)
	}
	s.fires = left
}

func (s *session) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up != nil {
		s.up.wake()
		s.down.wake()
	}
}

func (s *session) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready && !s.over
}

func (s *session) appName() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.app
}

func (s *session) rename(app string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.app = app
}

func closeWrite(conn net.Conn) {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

// own copies bytes for a link.
func own(b []byte) []byte { return bytes.Clone(b) }
