package wire

import "sync"

// Stats is what a [Proxy] has counted since it began or was last reset.
type Stats struct {
	Connections int      // connections that have reached the server
	Cancels     int      // PostgreSQL's CancelRequests that were forwarded; each comes on a connection of its own
	RoundTrips  int      // bursts that the client sent and waited for
	Executed    int      // statements or commands forwarded
	SetUp       int      // RESP commands that set up or keep up a connection; in no other figure
	Statements  []string // the SQL executed, in order, while recording is on
	Commands    []Call   // the RESP commands, in order, while recording is on
}

// Call is a RESP command as it was recorded.
type Call struct {
	Name string // in capitals
	Key  string // the first key, empty where there is none
	Args int    // how many arguments, the name not counted
}

type counters struct {
	mu     sync.Mutex
	stats  Stats
	record bool
}

// Stats returns a snapshot of the counters.
func (p *Proxy) Stats() Stats {
	p.counters.mu.Lock()
	defer p.counters.mu.Unlock()
	s := p.counters.stats
	s.Statements = append([]string(nil), s.Statements...)
	s.Commands = append([]Call(nil), s.Commands...)
	return s
}

// ResetStats sets the counters to zero and forgets what was recorded.
func (p *Proxy) ResetStats() {
	p.counters.mu.Lock()
	defer p.counters.mu.Unlock()
	p.counters.stats = Stats{}
}

// Record turns the recording of statements and commands on or off. It is off
// at first; while it is on, the record grows with every statement.
func (p *Proxy) Record(on bool) {
	p.counters.mu.Lock()
	defer p.counters.mu.Unlock()
	p.counters.record = on
}

func (c *counters) add(change func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.stats)
}

// executed counts the units of a burst that are forwarded.
func (c *counters) executed(units []unit) {
	if len(units) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range units {
		u := &units[i]
		if u.setUp {
			c.stats.SetUp++
			continue
		}
		c.stats.Executed++
		switch {
		case !c.record:
		case u.command != "":
			c.stats.Commands = append(c.stats.Commands, Call{Name: u.command, Key: u.key(), Args: len(u.args)})
		default:
			c.stats.Statements = append(c.stats.Statements, u.sql)
		}
	}
}
