package wire

import (
	"sync"
	"sync/atomic"
	"time"
)

// Action is what a [Rule] does to the burst that holds the matched message,
// or to the matched answer.
type Action int

const (
	// Pass forwards everything: the rule only signals.
	Pass Action = iota
	// CutBefore forwards nothing from the matched statement's Parse or Bind on,
	// and closes both sides. Of an answer nothing from it on is forwarded.
	CutBefore
	// CutAfter forwards the whole burst and closes the client's side at once,
	// the server's when it has answered. An answer is forwarded up to the end
	// of its burst, then both sides are closed.
	CutAfter
	// HoldServer forwards the burst, and holds back everything the server sends
	// from now on (an answer: from it on) until Release.
	HoldServer
	// HoldClient holds the whole burst back until Release, and delivers it then
	// even if the client is gone. For an answer it is HoldServer.
	HoldClient
	// CutClientHoldServer closes the client's side at once, delivers the burst
	// to the server on Release, and closes the server's side when it has
	// answered. For an answer it is CutBefore.
	CutClientHoldServer
	// Delay holds the burst, or the answer and what came with it, up for
	// Rule.Delay.
	Delay
	// BlackHole stops the connection in both directions from the matched
	// message on, until [Proxy.Heal].
	BlackHole
	// Reset closes both sides at once by a TCP reset.
	Reset
)

// Rule is a fault at an exact message. The zero Action and Times signal once.
type Rule struct {
	Match  Match         // which message; required
	App    string        // only connections of that application_name; empty: all
	Times  int           // how often it fires: 0 is once, a negative number always
	Action Action        // what happens
	Delay  time.Duration // of the action Delay
	RST    bool          // a cut client is cut by a TCP reset
	Do     func(*Event)  // called when the rule fires, before the action; may be nil
}

// Armed is a rule in force.
type Armed struct {
	rule    Rule
	proxy   *Proxy
	left    atomic.Int64
	fired   chan struct{}
	settled chan struct{}

	mu    sync.Mutex
	holds []chan struct{}
}

// signals is how many signals a channel keeps that nobody has received.
const signals = 1024

// Arm puts a rule in force, for open connections too. Of several rules that
// match one message the one armed first fires. Match and Do may be called for
// several connections at once.
func (p *Proxy) Arm(rule Rule) *Armed {
	a := &Armed{rule: rule, proxy: p, fired: make(chan struct{}, signals), settled: make(chan struct{}, signals)}
	a.left.Store(int64(max(rule.Times, 1)))
	p.rules.add(a)
	return a
}

// Disarm takes the rule out of force. What it holds stays held until Release.
func (a *Armed) Disarm() { a.proxy.rules.remove(a) }

// Fired receives once for every time that the rule has fired and its action
// has begun: a cut client has been cut, a hold is in place.
func (a *Armed) Fired() <-chan struct{} { return a.fired }

// Settled receives once for every time that the rule has fired and the server
// has answered what was forwarded to it, or its connection has ended. The
// answer may still be held back from the client.
func (a *Armed) Settled() <-chan struct{} { return a.settled }

// Release lets go what the rule holds now.
func (a *Armed) Release() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, held := range a.holds {
		close(held)
	}
	a.holds = nil
}

func (a *Armed) hold() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := make(chan struct{})
	a.holds = append(a.holds, held)
	return held
}

// take uses up one of the times left.
func (a *Armed) take() bool {
	if a.rule.Times < 0 {
		return true
	}
	for {
		n := a.left.Load()
		if n <= 0 {
			return false
		}
		if a.left.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

func (a *Armed) matches(e *Event) bool {
	return (a.rule.App == "" || a.rule.App == e.App) && a.left.Load() > 0 && a.rule.Match(e) && a.take()
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // a rule that fires always, and nobody listens
	}
}

// list is a small set that is read far more often than it is changed.
type list[T any] struct {
	mu    sync.Mutex
	items atomic.Pointer[[]*T]
}

func (l *list[T]) all() []*T {
	if items := l.items.Load(); items != nil {
		return *items
	}
	return nil
}

func (l *list[T]) add(item *T) { l.change(func(items []*T) []*T { return append(items, item) }) }

func (l *list[T]) remove(item *T) {
	l.change(func(items []*T) []*T {
		kept := items[:0]
		for _, other := range items {
			if other != item {
				kept = append(kept, other)
			}
		}
		return kept
	})
}

func (l *list[T]) change(how func([]*T) []*T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	items := how(append([]*T(nil), l.all()...))
	l.items.Store(&items)
}
