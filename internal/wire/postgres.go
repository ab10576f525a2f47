package wire

import (
	"bytes"
	"encoding/binary"
	"strings"
)

const (
	frameHeader = 5        // type and length
	longest     = 1 << 30  // no message of the protocol is longer
	whole       = 64 << 20 // a burst is judged whole up to here
)

// frame measures the message at the beginning of buf: 0 when it isn't there
// yet, negative when this is no message of the protocol.
func frame(buf []byte) int {
	if len(buf) < frameHeader {
		return 0
	}
	n := int(binary.BigEndian.Uint32(buf[1:]))
	if n < 4 || n > longest {
		return -1
	}
	if len(buf) < n+1 {
		return 0
	}
	return n + 1
}

// postgresClient follows a client after its StartupMessage.
type postgresClient struct {
	sql     map[string]string // by prepared statement
	portals map[string]string // SQL by portal
	broken  bool

	// of the burst that is being read
	seen   int // bytes
	units  []unit
	parsed map[string]int // where a statement was parsed
	bound  map[string]int // where a portal's Parse or Bind began
}

func (d *postgresClient) next(buf []byte, last bool) (burst, int) {
	if d.broken {
		return burst{quiet: true}, len(buf)
	}
	for {
		n := frame(buf[d.seen:])
		if n < 0 {
			d.broken = true
			return d.take(burst{}), len(buf)
		}
		if n == 0 && last {
			return d.take(burst{quiet: true}), len(buf)
		}
		if n == 0 && d.seen < whole {
			return burst{}, 0
		}
		if n == 0 {
			size := d.seen
			return d.take(burst{quiet: true}), size
		}
		message := buf[d.seen : d.seen+n]
		at := d.seen
		d.seen += n
		if b, ends := d.message(message[0], message[frameHeader:], at); ends {
			size := d.seen
			return d.take(b), size
		}
	}
}

func (d *postgresClient) take(b burst) burst {
	b.units = d.units
	d.seen, d.units, d.parsed, d.bound = 0, nil, nil, nil
	return b
}

// message takes note of one message; true when it ends a burst.
func (d *postgresClient) message(kind byte, body []byte, at int) (burst, bool) {
	switch kind {
	case 'P':
		name, rest := text(body)
		sql, _ := text(rest)
		d.sql[name] = sql
		note(&d.parsed, name, at)
	case 'B':
		portal, rest := text(body)
		name, _ := text(rest)
		d.portals[portal] = d.sql[name]
		if parsed, here := d.parsed[name]; here {
			at = parsed
		}
		note(&d.bound, portal, at)
	case 'E':
		portal, _ := text(body)
		if bound, here := d.bound[portal]; here {
			at = bound
		}
		d.execute(d.portals[portal], at)
	case 'C':
		d.close(body)
	case 'D': // Describe
	case 'Q':
		sql, _ := text(body)
		for _, statement := range split(sql) {
			d.execute(statement, at)
		}
		return burst{answers: 1}, true
	case 'S', 'F':
		return burst{answers: 1}, true
	case 'H':
		return burst{flush: true}, true
	default: // Terminate, passwords, COPY's data
		return burst{quiet: true}, true
	}
	return burst{}, false
}

func (d *postgresClient) execute(sql string, at int) {
	d.units = append(d.units, unit{at: at, end: d.seen, sql: sql})
	if begins(sql, "DEALLOCATE ALL") || begins(sql, "DISCARD ALL") {
		clear(d.sql)
		clear(d.portals)
	}
}

func (d *postgresClient) close(body []byte) {
	if len(body) == 0 {
		return
	}
	name, _ := text(body[1:])
	if body[0] == 'S' {
		delete(d.sql, name)
	} else {
		delete(d.portals, name)
	}
}

func note(places *map[string]int, name string, at int) {
	if *places == nil {
		*places = map[string]int{}
	}
	(*places)[name] = at
}

func begins(sql, prefix string) bool {
	return len(sql) >= len(prefix) && strings.EqualFold(sql[:len(prefix)], prefix)
}

// text reads a string up to its zero byte.
func text(b []byte) (s string, rest []byte) {
	i := bytes.IndexByte(b, 0)
	if i < 0 {
		return string(b), nil
	}
	return string(b[:i]), b[i+1:]
}

// postgresServer follows the server after the client's StartupMessage.
type postgresServer struct{ broken bool }

func (d *postgresServer) next(buf []byte) ([]mark, int) {
	if d.broken {
		return nil, len(buf)
	}
	var marks []mark
	at := 0
	for {
		n := frame(buf[at:])
		if n < 0 {
			d.broken = true
			return marks, len(buf)
		}
		if n == 0 {
			return marks, at
		}
		m := mark{at: at, end: at + n}
		body := buf[at+frameHeader : at+n]
		switch buf[at] {
		case 'C': // CommandComplete
			m.answers, m.tag = true, bytes.TrimSuffix(body, []byte{0})
		case 'I', 's': // EmptyQueryResponse, PortalSuspended
			m.answers = true
		case 'E':
			m.answers, m.code = true, field(body, 'C')
		case 'Z':
			m.ready = true
		case 'G':
			m.copyIn = true
		case 'K':
			m.key = body
		}
		if m.answers || m.ready || m.copyIn || m.key != nil {
			marks = append(marks, m)
		}
		at += n
	}
}

// field finds a field of an ErrorResponse.
func field(body []byte, kind byte) []byte {
	for len(body) > 1 {
		end := bytes.IndexByte(body, 0)
		if end < 0 {
			return nil
		}
		if body[0] == kind {
			return body[1:end]
		}
		body = body[end+1:]
	}
	return nil
}
