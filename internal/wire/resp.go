package wire

import (
	"bytes"
	"strconv"
	"strings"
)

// respClient follows a RESP client. The commands that come together are a
// burst.
type respClient struct{ broken bool }

func (d *respClient) next(buf []byte, _ bool) (burst, int) {
	if d.broken {
		return burst{quiet: true}, len(buf)
	}
	b := burst{quiet: true}
	at := 0
	for at < len(buf) {
		args, n := request(buf[at:])
		if n < 0 {
			d.broken = true
			return b, len(buf)
		}
		if n == 0 {
			break
		}
		if len(args) > 0 {
			u := command(args)
			u.at, u.end = at, at+n
			b.units = append(b.units, u)
			b.quiet = b.quiet && u.setUp
		}
		at += n
	}
	return b, at
}

func command(args [][]byte) unit {
	u := unit{command: strings.ToUpper(string(args[0])), args: args[1:], answers: 1}
	switch u.command {
	case "HELLO", "AUTH", "CLIENT", "SELECT", "READONLY", "READWRITE", "PING", "CLUSTER", "COMMAND", "ROLE", "QUIT":
		u.setUp = true
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		u.answers = 0 // they are answered by pushes
	}
	return u
}

// key is the first key of a command, as far as its place is known.
func (u *unit) key() string {
	at := 0
	switch u.command {
	case "EVAL", "EVALSHA", "EVAL_RO", "EVALSHA_RO", "FCALL", "FCALL_RO":
		if len(u.args) < 2 || string(u.args[1]) == "0" {
			return ""
		}
		at = 2
	}
	if u.setUp || at >= len(u.args) {
		return ""
	}
	return string(u.args[at])
}

// name is what a connection calls itself in this command, or "".
func (u *unit) name() string {
	for i := 0; i+1 < len(u.args); i++ {
		if (u.command == "CLIENT" || u.command == "HELLO") && strings.EqualFold(string(u.args[i]), "SETNAME") {
			return string(u.args[i+1])
		}
	}
	return ""
}

// request reads one command: its size is 0 when it isn't there whole yet, and
// negative when this is no RESP.
func request(buf []byte) ([][]byte, int) {
	line, at := respLine(buf)
	if at == 0 {
		return nil, 0
	}
	if len(line) == 0 || line[0] != '*' {
		return bytes.Fields(line), at // an inline command
	}
	count, ok := number(line[1:])
	if !ok || count > 1<<20 {
		return nil, -1
	}
	args := make([][]byte, 0, min(max(count, 0), 64))
	for range count {
		header, n := respLine(buf[at:])
		if n == 0 {
			return nil, 0
		}
		if len(header) == 0 || header[0] != '$' {
			return nil, -1
		}
		size, ok := number(header[1:])
		if !ok || size < 0 || size > longest {
			return nil, -1
		}
		at += n
		if len(buf) < at+size+2 {
			return nil, 0
		}
		args = append(args, buf[at:at+size])
		at += size + 2
	}
	return args, at
}

// respServer follows a RESP server, version 2 or 3.
type respServer struct{ broken bool }

func (d *respServer) next(buf []byte) ([]mark, int) {
	if d.broken {
		return nil, len(buf)
	}
	var marks []mark
	at := 0
	for at < len(buf) {
		n := measure(buf[at:])
		if n < 0 {
			d.broken = true
			return marks, len(buf)
		}
		if n == 0 {
			break
		}
		if buf[at] != '>' { // a push answers nothing
			line, _ := respLine(buf[at:])
			m := mark{at: at, end: at + n, answers: true, ready: true, tag: line}
			if line[0] == '-' {
				m.code, _, _ = bytes.Cut(line[1:], []byte(" "))
			}
			marks = append(marks, m)
		}
		at += n
	}
	return marks, at
}

// measure sizes one reply, as [request] does a command.
func measure(buf []byte) int {
	line, at := respLine(buf)
	if at == 0 {
		return 0
	}
	if len(line) == 0 {
		return -1
	}
	parts := 0 // replies inside of this one
	switch line[0] {
	case '+', '-', ':', '_', ',', '#', '(':
		return at
	case '$', '!', '=':
		size, ok := number(line[1:])
		if !ok || size > longest {
			return -1
		}
		if size < 0 {
			return at
		}
		if len(buf) < at+size+2 {
			return 0
		}
		return at + size + 2
	case '*', '~', '>', '%', '|':
		n, ok := number(line[1:])
		if !ok {
			return -1
		}
		parts = n
		if line[0] == '%' || line[0] == '|' {
			parts = 2 * n
		}
		if line[0] == '|' {
			parts++ // an attribute goes with the reply behind it
		}
	default:
		return -1
	}
	for range parts {
		n := measure(buf[at:])
		if n <= 0 {
			return n
		}
		at += n
	}
	return at
}

// respLine reads a line and returns its size with the line's end.
func respLine(buf []byte) (line []byte, size int) {
	i := bytes.IndexByte(buf, '\n')
	if i < 0 {
		return nil, 0
	}
	return bytes.TrimSuffix(buf[:i], []byte{'\r'}), i + 1
}

func number(b []byte) (int, bool) {
	n, err := strconv.Atoi(string(b))
	return n, err == nil
}
