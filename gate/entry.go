package gate

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

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

	tokenBytes = 2 + 1 + 4 + 16
	orderBytes = 16 + 8 + 1
	headBytes  = 2 + orderBytes + 32 + 1 // of an entry, up to its encoding

	noData  = 0
	hasData = 1
)

func (t Token) encode() string {
	b := make([]byte, 0, tokenBytes)
	b = append(b, kindToken, wireVersion, 0)
	if t.Derived {
		b[2] = 1
	}
	b = binary.BigEndian.AppendUint32(b, uint32(t.Delivery)) //nolint:gosec // the bits are kept
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
	b := make([]byte, 0, headBytes+len(e.Outcome.Encoding)+1+len(e.Outcome.Data))
	b = append(b, kindEntry, wireVersion)
	b = append(b, e.order()...)
	b = append(b, e.Fingerprint[:]...)
	b = append(b, byte(len(e.Outcome.Encoding))) //nolint:gosec // at most 64: the ledger's rule
	b = append(b, e.Outcome.Encoding...)
	if e.Outcome.Data == nil {
		return string(append(b, noData))
	}
	b = append(b, hasData)
	return string(append(b, e.Outcome.Data...))
}

var errForeign = errors.New("gate: decode: not an entry or token of this library")

// decode reads whatever stands at a key. It never panics, and answers what
// isn't exactly what encode writes with an error.
func decode(b []byte) (*Token, *Entry, error) {
	switch {
	case len(b) == tokenBytes && b[0] == kindToken && b[1] == wireVersion && b[2] <= 1:
		t := &Token{Derived: b[2] == 1, Delivery: int32(binary.BigEndian.Uint32(b[3:]))} //nolint:gosec // the bits are kept
		copy(t.ID[:], b[7:])
		return t, nil, nil
	case len(b) >= headBytes && b[0] == kindEntry && b[1] == wireVersion:
		e, err := decodeEntry(b)
		return nil, e, err
	default:
		return nil, nil, errForeign
	}
}

func decodeEntry(b []byte) (*Entry, error) {
	order := string(b[2 : 2+orderBytes])
	row, rowErr := strconv.ParseInt(order[:16], 16, 64)
	attempt, attemptErr := strconv.ParseInt(order[16:24], 16, 32)
	if rowErr != nil || attemptErr != nil || row <= 0 || attempt <= 0 {
		return nil, errForeign
	}
	e := &Entry{RowID: row, Attempt: int32(attempt), Status: ledger.Completed}
	if order[24] == '1' {
		e.Status = ledger.FailedPermanent
	}
	copy(e.Fingerprint[:], b[2+orderBytes:])
	n, rest := int(b[headBytes-1]), b[headBytes:]
	if e.order() != order || len(rest) < n+1 || !validEncoding(rest[:n]) {
		return nil, errForeign
	}
	e.Outcome.Encoding = string(rest[:n])
	switch flag, data := rest[n], rest[n+1:]; {
	case flag == hasData:
		e.Outcome.Data = append([]byte{}, data...)
	case flag != noData || len(data) > 0:
		return nil, errForeign
	}
	return e, nil
}

// validEncoding is the ledger's rule for the name of an encoding.
func validEncoding(b []byte) bool {
	for _, c := range b {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return len(b) >= 1 && len(b) <= 64
}
