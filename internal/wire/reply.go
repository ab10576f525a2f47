package wire

import "time"

// reply is what a server has sent in one piece, on its way to the client.
type reply struct {
	session *session
	data    []byte
	sent    int // bytes
	extra   time.Duration
}

// forward sends what comes before a place.
func (r *reply) forward(to int) {
	if to > r.sent {
		r.session.down.send(r.data[r.sent:to:to], r.extra)
		r.sent = to
	}
}

// mark deals with one mark; false when the server isn't read any more.
func (r *reply) mark(m mark) bool {
	s := r.session
	s.mu.Lock()
	if m.key != nil {
		s.key = string(m.key)
	}
	was := s.account.outstanding
	q := s.account.answer(m)
	idle, parting := s.account.idle(), s.parting
	s.mu.Unlock()
	if m.answers && s.proxy.watched() {
		e := s.event(KindAnswer)
		e.SQL, e.Command, e.Key = q.sql, q.command, q.key
		e.Tag, e.Code = string(m.tag), string(m.code)
		o := s.judge(e)
		o.at = m.at
		if !r.carryOut(o) {
			return false
		}
	}
	if !m.ready || !idle || was == 0 {
		return true
	}
	s.settle(false)
	if s.cutting != nil {
		r.forward(m.end)
		s.endClient(*s.cutting)
		return false
	}
	return !parting
}

// carryOut does at an answer what the outcome wants; false when the server
// isn't read any more.
func (r *reply) carryOut(o outcome) bool {
	s := r.session
	switch o.action {
	case Pass:
	case Delay:
		r.forward(o.at)
		r.extra += o.delay()
	case HoldServer, HoldClient:
		r.forward(o.at)
		s.down.holdUntil(o.armed.hold())
	case BlackHole:
		r.forward(o.at)
		s.hole.shut()
	case CutAfter:
		s.cutting = &o
		return true
	case CutBefore, CutClientHoldServer:
		r.forward(o.at)
		s.endClient(o)
		return false
	case Reset:
		s.abort(true)
		o.fired()
		return false
	case swallow:
		r.forward(o.at)
		s.down.ignore()
	}
	o.fired()
	return true
}
