package gate

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/effectonce/effectonce/ledger"
)

// Entry is what stands at the gate for a finished key: the row's outcome, and
// what is needed to check it and to order it among others.
type Entry struct {
	RowID       int64
	Attempt     int32
	Status      ledger.Status
	Fingerprint ledger.Fingerprint
	Outcome     ledger.Outcome
}

// Token is what stands at the gate while a key is being processed.
type Token struct {
	// Derived and Delivery bound whom the token bars: a derived key's token
	// doesn't bar a later delivery, because Temporal has given that one up.
	Derived  bool
	Delivery int32
	// ID tells this execution's token from any other.
	ID [16]byte
}

func newToken(derived bool, delivery int32) Token {
	t := Token{Derived: derived, Delivery: delivery}
	_, _ = rand.Read(t.ID[:]) // never fails: crypto/rand's documentation
	return t
}

// bars reports whether the token, found at the gate, bars the holder of mine.
func (t Token) bars(mine Token) bool {
	return !(t.Derived && mine.Derived && t.Delivery < mine.Delivery)
}

// The wire forms. Both begin with a byte for the kind and one for the version.
// An entry goes on with its order (row id, attempt, state) in hexadecimal
// digits of fixed width, so that a script compares two of them as texts.
const (
	kindToken   = 't'
	kindEntry   = 'e'
	wireVersion = '1'

	tokenBytes  = 2 + 1 + 4 + 16
	orderBytes  = 16 + 8 + 1
	orderBegins = 2
)

func (t Token) encode() string {
	b := make([]byte, 0, tokenBytes)
	b = append(b, kindToken, wireVersion, 0)
	if t.Derived {
		b[2] = 1
	}
	b = binary.BigEndian.AppendUint32(b, uint32(t.Delivery)) //nolint:gosec // a delivery's number is positive
	b = append(b, t.ID[:]...)
	return string(b)
}

// order is the entry's place among entries for the same key.
func (e Entry) order() string {
	state := 1
	if e.Status == ledger.Completed {
		state = 2
	}
	return fmt.Sprintf("%016x%08x%d", uint64(e.RowID), uint32(e.Attempt), state) //nolint:gosec // both are positive
}

func (e Entry) encode() string {
	b := make([]byte, 0, 2+orderBytes+len(e.Fingerprint)+2+len(e.Outcome.Encoding)+len(e.Outcome.Data))
	b = append(b, kindEntry, wireVersion)
	b = append(b, e.order()...)
	b = append(b, e.Fingerprint[:]...)
	b = append(b, byte(len(e.Outcome.Encoding))) //nolint:gosec // at most 64: the ledger's rule
	b = append(b, e.Outcome.Encoding...)
	if e.Outcome.Data == nil {
		return string(append(b, 0))
	}
	b = append(b, 1)
	return string(append(b, e.Outcome.Data...))
}

var errForeign = errors.New("gate: decode: not an entry or token of this library")

// decode reads whatever stands at a key. It never panics, and answers what
// isn't a whole token or entry with an error.
func decode(b []byte) (token *Token, entry *Entry, err error) {
	if len(b) < 2 || b[1] != wireVersion {
		return nil, nil, errForeign
	}
	switch b[0] {
	case kindToken:
		if len(b) != tokenBytes || b[2] > 1 {
			return nil, nil, errForeign
		}
		t := &Token{Derived: b[2] == 1, Delivery: int32(binary.BigEndian.Uint32(b[3:]))} //nolint:gosec // any bits are a number
		copy(t.ID[:], b[7:])
		return t, nil, nil
	case kindEntry:
		e, err := decodeEntry(b[orderBegins:])
		return nil, e, err
	default:
		return nil, nil, errForeign
	}
}

func decodeEntry(b []byte) (*Entry, error) {
	if len(b) < orderBytes+32+1 {
		return nil, errForeign
	}
	var row uint64
	var attempt uint32
	var state int
	if _, err := fmt.Sscanf(string(b[:orderBytes]), "%16x%8x%1d", &row, &attempt, &state); err != nil {
		return nil, errForeign
	}
	e := &Entry{RowID: int64(row), Attempt: int32(attempt), Status: ledger.Completed} // checked below
	if state == 1 {
		e.Status = ledger.FailedPermanent
	}
	if e.RowID <= 0 || e.Attempt <= 0 || e.order() != string(b[:orderBytes]) {
		return nil, errForeign
	}
	b = b[orderBytes:]
	copy(e.Fingerprint[:], b)
	n := int(b[32])
	if b = b[33:]; n == 0 || n > 64 || len(b) < n+1 {
		return nil, errForeign
	}
	e.Outcome.Encoding = string(b[:n])
	switch data := b[n+1:]; {
	case b[n] == 1:
		e.Outcome.Data = append([]byte{}, data...)
	case b[n] != 0 || len(data) > 0:
		return nil, errForeign
	}
	if bytes.ContainsAny([]byte(e.Outcome.Encoding), "\"\\") {
		return nil, errForeign
	}
	return e, nil
}
