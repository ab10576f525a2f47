package wire

// account keeps, for one connection, what has been asked and not yet been
// answered.
type account struct {
	outstanding int // ends of answers to come
	open        bool
	flushed     bool // a Flush has asked for an answer
	copying     bool

	asked       []question // without an answer yet
	sent, ended int        // ends of answers: asked for, and come
}

// question is a statement or a command, as its answer's event tells it.
type question struct {
	sql, command, key string
	group             int // the answer ends before this many others have
}

// begin opens the account of a PostgreSQL connection: its start is answered by
// a ReadyForQuery and is no round trip.
func (a *account) begin() { a.outstanding, a.sent, a.open = 1, 1, true }

func (a *account) idle() bool { return a.outstanding == 0 }

// request enters a burst; true when a round trip begins with it.
func (a *account) request(b burst) bool {
	for i := range b.units {
		u := &b.units[i]
		if u.command != "" && u.answers == 0 {
			continue
		}
		q := question{sql: u.sql, command: u.command, group: a.sent}
		if u.command != "" {
			q.key = u.key()
		}
		a.asked = append(a.asked, q)
		a.outstanding += u.answers
		a.sent += u.answers
	}
	a.outstanding += b.answers
	a.sent += b.answers
	a.flushed = b.flush
	if b.quiet || a.open {
		return false
	}
	a.open = true
	return !b.more
}

// heard notes that the server has sent something.
func (a *account) heard() {
	if a.flushed && a.outstanding == 0 {
		a.flushed, a.open = false, false
	}
}

// answer enters a mark and returns what it answers, where that is known.
func (a *account) answer(m mark) (q question) {
	if m.answers && len(a.asked) > 0 && a.asked[0].group == a.ended {
		q = a.asked[0]
		a.asked = a.asked[1:]
	}
	if m.copyIn {
		a.copying = true
	}
	if !m.ready || a.outstanding == 0 {
		return q
	}
	a.outstanding--
	a.ended++
	if a.copying {
		a.copying, a.outstanding, a.ended = false, 0, a.sent
	}
	a.skip(a.ended)
	if a.outstanding == 0 {
		a.open = false
	}
	return q
}

// skip forgets what belongs to groups before this one.
func (a *account) skip(group int) {
	for len(a.asked) > 0 && a.asked[0].group < group {
		a.asked = a.asked[1:]
	}
	if len(a.asked) == 0 {
		a.asked = nil
	}
}
