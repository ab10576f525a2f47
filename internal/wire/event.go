package wire

import (
	"strings"
	"time"

	"github.com/effectonce/effectonce/internal/sqltext"
)

// Kind tells what an [Event] is about.
type Kind int

const (
	// KindConnect is a connection that has said who it is; in RESP and raw
	// connections, one that has been accepted.
	KindConnect Kind = iota + 1
	// KindStatement is an SQL statement on its way to the server.
	KindStatement
	// KindCommand is a RESP command on its way to the server.
	KindCommand
	// KindAnswer is the server's answer to a statement (CommandComplete or
	// ErrorResponse) or to a command, on its way to the client.
	KindAnswer
)

// Event is one message that the proxy has received and not yet forwarded.
type Event struct {
	Seq  uint64    // orders the events of a proxy
	Time time.Time // when the message was received
	Conn uint64    // numbers the connections of a proxy, from 1
	App  string    // application_name at the start of the connection, or the name a RESP client has set
	Kind Kind

	SQL     string   // the statement, and of an answer the statement that it answers, where it is known
	Command string   // the RESP command in capitals, and of an answer the one that it answers
	Key     string   // the first key of a RESP command
	Args    [][]byte // all of a RESP command but its name; valid until the callback returns
	Tag     string   // of an answer: the command tag, or RESP's first line
	Code    string   // of an error answer: the SQLSTATE, or RESP's first word

	verdict verdict
}

type verdict int

const (
	forward verdict = iota
	drop
	cut
)

// Drop has the message swallowed, and everything behind it in its direction;
// the connection stays open, and silent, until either side closes it.
func (e *Event) Drop() { e.verdict = drop }

// Cut closes both sides of the connection without forwarding the message.
func (e *Event) Cut() { e.verdict = cut }

// Match chooses the messages that fire a [Rule].
type Match func(*Event) bool

// SQL matches a client's statement for which the function is true.
func SQL(is func(sql string) bool) Match {
	return func(e *Event) bool { return e.Kind == KindStatement && is(e.SQL) }
}

// Commit matches a client's COMMIT or END.
func Commit() Match {
	return SQL(func(sql string) bool {
		word := sqltext.EndsTransaction(sql)
		return word == "COMMIT" || word == "END"
	})
}

// HasPrefix matches a client's statement that begins so, in any case of
// letters.
func HasPrefix(prefix string) Match {
	return SQL(func(sql string) bool {
		return len(sql) >= len(prefix) && strings.EqualFold(sql[:len(prefix)], prefix)
	})
}

// Contains matches a client's statement that contains the text, in any case
// of letters.
func Contains(text string) Match {
	text = strings.ToLower(text)
	return SQL(func(sql string) bool { return strings.Contains(strings.ToLower(sql), text) })
}

// Command matches a RESP command by its name, in any case of letters, and by
// the beginning of its first key. Either may be empty.
func Command(name, keyPrefix string) Match {
	return func(e *Event) bool {
		return e.Kind == KindCommand &&
			(name == "" || strings.EqualFold(e.Command, name)) && strings.HasPrefix(e.Key, keyPrefix)
	}
}

// Tag matches the server's CommandComplete by its whole tag ("COMMIT",
// "INSERT 0 1"), or a RESP answer by its first line ("+OK", "$-1").
func Tag(tag string) Match {
	return func(e *Event) bool { return e.Kind == KindAnswer && e.Code == "" && e.Tag == tag }
}

// AnswerTo matches the server's answer, an error too, to what asked matches.
func AnswerTo(asked Match) Match {
	return func(e *Event) bool {
		if e.Kind != KindAnswer {
			return false
		}
		question := *e
		question.Kind = KindStatement
		if e.Command != "" {
			question.Kind = KindCommand
		}
		return asked(&question)
	}
}

// Connected matches a connection that has said who it is.
func Connected() Match { return func(e *Event) bool { return e.Kind == KindConnect } }
