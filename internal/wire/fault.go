package wire

import (
	"time"

	"github.com/effectonce/effectonce/internal/clock"
)

// swallow is the Action of [Event.Drop].
const swallow Action = -1

// outcome is what the observers and the rules want done at one message.
type outcome struct {
	action Action
	armed  *Armed // nil where an observer wants it
	at     int    // where the message begins
}

func (o outcome) reset() bool { return o.armed != nil && o.armed.rule.RST }

func (o outcome) delay() time.Duration {
	if o.action != Delay {
		return 0
	}
	return o.armed.rule.Delay
}

// last tells that nothing behind the message is forwarded as it came.
func (o outcome) last() bool {
	return o.action == CutBefore || o.action == Reset || o.action == swallow
}

func (p *Proxy) watched() bool { return len(p.rules.all()) > 0 || len(p.observers.all()) > 0 }

func (s *session) event(kind Kind) *Event {
	return &Event{Seq: s.proxy.events.Add(1), Time: clock.Now(), Conn: s.id, App: s.appName(), Kind: kind}
}

// judge shows a message to the observers, and then to the rules.
func (s *session) judge(e *Event) outcome {
	var o outcome
	for _, observe := range s.proxy.observers.all() {
		(*observe)(e)
	}
	if e.verdict == forward {
		for _, armed := range s.proxy.rules.all() {
			if !armed.matches(e) {
				continue
			}
			o.armed, o.action = armed, armed.rule.Action
			if armed.rule.Do != nil {
				armed.rule.Do(e)
			}
			break
		}
	}
	switch e.verdict {
	case drop:
		o.action = swallow
	case cut:
		o.action = CutBefore
	case forward:
	}
	if o.action != Pass && o.action != Delay {
		s.strike()
	}
	if o.armed != nil {
		s.watch(o.armed, o.last())
	}
	return o
}

// fired signals that the action has begun.
func (o outcome) fired() {
	if o.armed != nil {
		signal(o.armed.fired)
	}
}

// fromClient judges and forwards the whole bursts in buf.
func (s *session) fromClient(decoder clientDecoder, buf []byte, more, last bool) (used int, ok bool) {
	for used < len(buf) {
		b, n := decoder.next(buf[used:], last)
		if n == 0 {
			break
		}
		b.more, more = more, true
		if s.request(b, buf[used:used+n]) {
			return used, false
		}
		used += n
	}
	return used, true
}

// request judges and forwards a burst; true when the client isn't read any
// more.
func (s *session) request(b burst, data []byte) bool {
	s.mu.Lock()
	begins := s.account.request(b)
	s.mu.Unlock()
	if begins {
		s.proxy.counters.add(func(c *Stats) { c.RoundTrips++ })
	}
	for i := range b.units {
		if name := b.units[i].name(); name != "" {
			s.rename(name)
		}
	}
	var outcomes []outcome
	units := b.units
	if s.proxy.watched() {
		for i := range b.units {
			o := s.judge(s.asking(&b.units[i]))
			o.at = b.units[i].at
			if o.action != Pass || o.armed != nil {
				outcomes = append(outcomes, o)
			}
			if o.last() {
				units = before(units, o.at)
				break
			}
		}
	}
	s.proxy.counters.executed(units)
	return s.carryOut(outcomes, own(data))
}

func (s *session) asking(u *unit) *Event {
	e := s.event(KindStatement)
	e.SQL = u.sql
	if u.command != "" {
		e.Kind, e.Command, e.Key, e.Args = KindCommand, u.command, u.key(), u.args
	}
	return e
}

// before returns the units that end before a place.
func before(units []unit, at int) []unit {
	for i := range units {
		if units[i].end > at {
			return units[:i]
		}
	}
	return units
}

// carryOut forwards a burst as the outcomes want it; true when the client
// isn't read any more.
func (s *session) carryOut(outcomes []outcome, data []byte) bool {
	var extra time.Duration
	for _, o := range outcomes {
		switch o.action {
		case Pass, Delay:
			extra += o.delay()
			o.fired()
		case HoldServer:
			s.down.holdUntil(o.armed.hold())
			o.fired()
		case HoldClient:
			held := o.armed.hold()
			o.fired()
			s.await(held)
		case BlackHole:
			s.hole.shut()
			o.fired()
		case CutAfter, CutClientHoldServer:
			s.cutAndDeliver(o, data, extra)
			return true
		case CutBefore:
			s.up.send(data[:o.at], extra)
			s.up.finish()
			s.cutClient(o.reset())
			o.fired()
			return true
		case Reset:
			s.abort(true)
			o.fired()
			return true
		case swallow:
			s.up.send(data[:o.at], extra)
			s.up.ignore()
			o.fired()
		}
	}
	s.up.send(data, extra)
	return false
}

// cutAndDeliver closes the client's side before the burst goes to the server:
// its answer can't overtake the cut.
func (s *session) cutAndDeliver(o outcome, data []byte, extra time.Duration) {
	var held <-chan struct{}
	if o.action == CutClientHoldServer {
		held = o.armed.hold()
	}
	s.cutClient(o.reset())
	o.fired()
	if held != nil {
		s.await(held)
	}
	s.up.send(data, extra)
	s.part()
}

// fromServer judges and forwards the whole messages in buf.
func (s *session) fromServer(decoder serverDecoder, buf []byte) (used int, ok bool) {
	marks, n := decoder.next(buf)
	if n == 0 {
		return 0, true
	}
	answer := reply{session: s, data: own(buf[:n])}
	s.mu.Lock()
	s.account.heard()
	s.mu.Unlock()
	for _, m := range marks {
		if !answer.mark(m) {
			return n, false
		}
	}
	answer.forward(n)
	return n, true
}
