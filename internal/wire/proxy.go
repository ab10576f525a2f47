package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/effectonce/effectonce/internal/clock"
)

// Protocol says what a [Proxy] understands.
type Protocol int

const (
	// Raw forwards bytes: only the controls of the whole proxy work.
	Raw Protocol = iota
	// Postgres is version 3 of PostgreSQL's protocol.
	Postgres
	// RESP is the protocol of Valkey and Redis, versions 2 and 3.
	RESP
)

// Proxy stands between clients and one server. Its methods may be called at
// any time and from any goroutine.
type Proxy struct {
	upstream string
	protocol Protocol
	addr     string

	rules     list[Armed]
	observers list[func(*Event)]
	counters  counters
	hole      gate
	delay     atomic.Int64
	events    atomic.Uint64
	numbers   atomic.Uint64

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while down
	sessions map[*session]struct{}
	refusing bool
	closed   bool
}

// Conn is an open connection.
type Conn struct {
	ID  uint64 // as in [Event].Conn
	App string // as in [Event].App
}

// Listen starts a proxy on a free port of the loopback interface. Upstream is
// the server's host:port, or the path of its Unix socket. The proxy works
// until Close, or until ctx ends.
func Listen(ctx context.Context, upstream string, protocol Protocol) (*Proxy, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("wire: listen: %w", err)
	}
	p := &Proxy{
		upstream: upstream, protocol: protocol, addr: listener.Addr().String(),
		listener: listener, sessions: map[*session]struct{}{},
	}
	p.ctx, p.cancel = context.WithCancel(ctx)
	p.work.Add(2)
	go p.accept(listener)
	go func() {
		defer p.work.Done()
		<-p.ctx.Done()
		p.shut()
	}()
	return p, nil
}

// Addr returns the address to connect to, host:port. It stays the same.
func (p *Proxy) Addr() string { return p.addr }

// Close cuts all connections and stops the proxy; no goroutine is left when
// it returns. It may be called more than once, but not from a callback.
func (p *Proxy) Close() {
	p.cancel()
	p.work.Wait()
}

func (p *Proxy) shut() {
	p.mu.Lock()
	p.closed = true
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.Cut()
}

// Observe has f called for every message that matters, before the message is
// forwarded and before the rules judge it; the returned function ends that.
// One connection's events come in order, two connections' at once. The message
// waits for f, and so does what is behind it.
func (p *Proxy) Observe(f func(*Event)) (stop func()) {
	p.observers.add(&f)
	return func() { p.observers.remove(&f) }
}

// Conns returns the open connections that have said who they are, in the
// order in which they were opened.
func (p *Proxy) Conns() []Conn {
	var conns []Conn
	for _, s := range p.open() {
		if s.running() {
			conns = append(conns, Conn{ID: s.id, App: s.appName()})
		}
	}
	slices.SortFunc(conns, func(a, b Conn) int { return cmp.Compare(a.ID, b.ID) })
	return conns
}

// Cut closes both sides of the open connections: of those with one of the
// application names, or of all.
func (p *Proxy) Cut(apps ...string) { p.end(false, apps) }

// Reset is Cut by TCP resets.
func (p *Proxy) Reset(apps ...string) { p.end(true, apps) }

func (p *Proxy) end(reset bool, apps []string) {
	for _, s := range p.open() {
		if len(apps) == 0 || slices.Contains(apps, s.appName()) {
			s.abort(reset)
		}
	}
}

// SetDelay sets how much later everything arrives, in each direction: half a
// millisecond makes a link of one millisecond's round trip. It holds for what
// is under way already, too.
func (p *Proxy) SetDelay(oneWay time.Duration) {
	p.delay.Store(int64(oneWay))
	for _, s := range p.open() {
		s.wake()
	}
}

func (p *Proxy) linkDelay() time.Duration { return time.Duration(p.delay.Load()) }

// BlackHole lets nothing pass in either direction until Heal: no bytes, no end
// of a connection, no new connection, though it seems to open. What was sent
// meanwhile arrives then, as after a network's partition.
func (p *Proxy) BlackHole() { p.hole.shut() }

// Refuse resets new connections as soon as they open, until Heal. Open ones
// stay.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = true
}

// Down closes the port, so that connecting is refused, until Heal. Open
// connections stay.
func (p *Proxy) Down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// Heal ends BlackHole, the action too, Refuse and Down. It fails only when
// somebody has taken the port meanwhile.
func (p *Proxy) Heal() error {
	p.hole.open()
	for _, s := range p.open() {
		s.hole.open()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refusing = false
	if p.listener != nil || p.closed {
		return nil
	}
	var config net.ListenConfig
	listener, err := config.Listen(p.ctx, "tcp", p.addr)
	if err != nil {
		return fmt.Errorf("wire: listen again: %w", err)
	}
	p.listener = listener
	p.work.Add(1)
	go p.accept(listener)
	return nil
}

func (p *Proxy) accept(listener net.Listener) {
	defer p.work.Done()
	for {
		client, err := listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // out of descriptors: some may come free
			if clock.Wait(p.ctx, time.Millisecond) != nil {
				return
			}
		default:
			p.admit(client)
		}
	}
}

func (p *Proxy) admit(client net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refusing || p.closed {
		resets(client)
		_ = client.Close()
		return
	}
	s := newSession(p, client)
	p.sessions[s] = struct{}{}
	p.work.Add(1)
	go func() {
		defer p.work.Done()
		s.serve()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.sessions, s)
	}()
}

func (p *Proxy) open() []*session {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*session, 0, len(p.sessions))
	for s := range p.sessions {
		all = append(all, s)
	}
	return all
}

func (p *Proxy) dial() (net.Conn, error) {
	var dialer net.Dialer
	network := "tcp"
	if strings.HasPrefix(p.upstream, "/") {
		network = "unix"
	}
	conn, err := dialer.DialContext(p.ctx, network, p.upstream)
	if err != nil {
		return nil, fmt.Errorf("wire: dial the server: %w", err)
	}
	return conn, nil
}

// resets has the closing of a TCP connection reset it.
func resets(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}
