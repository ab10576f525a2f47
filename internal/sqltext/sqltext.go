// Package sqltext reads just enough SQL to say whether a text would end the
// transaction that it runs in. It imports the standard library alone.
package sqltext

import "strings"

// EndsTransaction returns the leading words of the first statement in sql that
// would end a transaction (COMMIT, END, ROLLBACK, ABORT, PREPARE TRANSACTION),
// or "". Statements on savepoints, ROLLBACK TO among them, are fine. Comments,
// quoted text and the bodies of functions are passed over.
func EndsTransaction(sql string) string {
	s := scanner{text: sql}
	for s.pos < len(s.text) {
		if words := s.statement(); words != "" {
			return words
		}
	}
	return ""
}

type scanner struct {
	text string
	pos  int
}

// statement reads up to the next semicolon and judges the statement by its
// first three words.
func (s *scanner) statement() string {
	var head [3]string
	n, depth, last := 0, 0, ""
	for {
		word, end := s.next()
		if end {
			if depth > 0 && s.pos < len(s.text) {
				continue // a semicolon inside of BEGIN ATOMIC … END
			}
			return judge(head)
		}
		if n < len(head) {
			head[n] = strings.ToUpper(word)
			n++
		}
		if head[0] == "CREATE" {
			depth = nest(depth, last, word)
			last = word
		}
	}
}

// nest follows the blocks of an SQL-standard function body.
func nest(depth int, last, word string) int {
	switch {
	case depth == 0 && strings.EqualFold(last, "BEGIN") && strings.EqualFold(word, "ATOMIC"):
		return 1
	case depth > 0 && strings.EqualFold(word, "CASE"):
		return depth + 1
	case depth > 0 && strings.EqualFold(word, "END"):
		return depth - 1
	default:
		return depth
	}
}

func judge(head [3]string) string {
	switch head[0] {
	case "COMMIT", "END", "ABORT":
		return head[0]
	case "ROLLBACK":
		second := head[1]
		if second == "WORK" || second == "TRANSACTION" {
			second = head[2]
		}
		if second == "TO" {
			return ""
		}
		return head[0]
	case "PREPARE":
		if head[1] == "TRANSACTION" {
			return "PREPARE TRANSACTION"
		}
	}
	return ""
}

// next returns the next word, or true at a semicolon or the end. Anything that
// isn't a word (quoted text, operators, numbers) comes as a word that no
// statement begins with.
func (s *scanner) next() (word string, end bool) {
	for s.pos < len(s.text) {
		c := s.text[s.pos]
		switch {
		case c == ';':
			s.pos++
			return "", true
		case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v':
			s.pos++
		case s.has("--"):
			s.line()
		case s.has("/*"):
			s.comment()
		case isStart(c):
			return s.word(), false
		case c == '\'':
			s.quoted('\'', false)
			return "'", false
		case c == '"':
			s.quoted('"', false)
			return `"`, false
		case c == '$':
			s.dollar()
			return "$", false
		default:
			s.pos++
			return s.text[s.pos-1 : s.pos], false
		}
	}
	return "", true
}

func (s *scanner) has(prefix string) bool { return strings.HasPrefix(s.text[s.pos:], prefix) }

func (s *scanner) line() {
	if i := strings.IndexAny(s.text[s.pos:], "\n\r"); i >= 0 {
		s.pos += i
		return
	}
	s.pos = len(s.text)
}

// comment passes over a block comment; PostgreSQL nests them.
func (s *scanner) comment() {
	depth := 0
	for s.pos < len(s.text) {
		switch {
		case s.has("/*"):
			depth++
			s.pos += 2
		case s.has("*/"):
			depth--
			s.pos += 2
			if depth == 0 {
				return
			}
		default:
			s.pos++
		}
	}
}

func (s *scanner) word() string {
	from := s.pos
	for s.pos < len(s.text) && (isStart(s.text[s.pos]) || isDigit(s.text[s.pos]) || s.text[s.pos] == '$') {
		s.pos++
	}
	w := s.text[from:s.pos]
	if s.pos < len(s.text) && s.text[s.pos] == '\'' && strings.EqualFold(w, "E") {
		s.quoted('\'', true)
	}
	return w
}

// quoted passes over a quoted text; a doubled quote stands for itself, and in
// E'…' a backslash takes the next byte with it.
func (s *scanner) quoted(quote byte, backslash bool) {
	for s.pos++; s.pos < len(s.text); s.pos++ {
		switch {
		case backslash && s.text[s.pos] == '\\':
			s.pos++
		case s.text[s.pos] == quote:
			if s.pos+1 < len(s.text) && s.text[s.pos+1] == quote {
				s.pos++
				continue
			}
			s.pos++
			return
		}
	}
	s.pos = min(s.pos, len(s.text))
}

// dollar passes over $tag$ … $tag$, or over the dollar of a parameter.
func (s *scanner) dollar() {
	end := s.pos + 1
	for end < len(s.text) && (isStart(s.text[end]) || end > s.pos+1 && isDigit(s.text[end])) {
		end++
	}
	if end >= len(s.text) || s.text[end] != '$' {
		s.pos++
		return
	}
	tag := s.text[s.pos : end+1]
	if i := strings.Index(s.text[end+1:], tag); i >= 0 {
		s.pos = end + 1 + i + len(tag)
		return
	}
	s.pos = len(s.text)
}

func isStart(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= 0x80
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
