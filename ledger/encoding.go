package ledger

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"

	"github.com/effectonce/effectonce/internal/digest"
)

// Encoding is how an operation's results are written down. It has an identity,
// a digest of what is promised about the bytes, which is kept with each outcome.
// An outcome of another identity is replayed only if this encoding's decoder
// accepts exactly those bytes; else it stays [CodeUnavailable], and the effect,
// which has happened, isn't run again. Make one with [JSON] or [NewEncoding].
type Encoding[T any] struct {
	identity string
	encode   func(T) ([]byte, error)
	decode   func([]byte) (T, error)
	max      int
	exact    bool  // decode refuses by itself whatever encode wouldn't have written
	fault    error // of the making
}

// EncodingOptions define an encoding. All but MaxBytes are required.
type EncodingOptions[T any] struct {
	// Form names the documents' form, such as "protobuf": 1 to 20 bytes of
	// lower-case letters, digits and hyphens.
	Form string
	// Contract is the text of the promise about the bytes, such as a schema: any
	// change of it makes another identity. It is only digested.
	Contract string
	// Version of the promise where its text doesn't change.
	Version uint32
	// Encode writes a result down whole. An error rolls the execution back.
	Encode func(T) ([]byte, error)
	// Decode reads what Encode wrote. It must refuse what has unknown or missing
	// parts. It may keep the bytes.
	Decode func([]byte) (T, error)
	// MaxBytes bounds one document, written or read. Default 2 MiB.
	MaxBytes int
}

// NewEncoding returns an encoding by explicit functions. Its outcome of another
// identity is accepted if Decode reads it and Encode then writes the very same
// bytes again: one that encrypts, or writes the same value in several ways,
// accepts its own identity only.
func NewEncoding[T any](o EncodingOptions[T]) (Encoding[T], error) {
	var faults []error
	if n := len(o.Form); n == 0 || n > 20 {
		faults = append(faults, fmt.Errorf("EncodingOptions.Form has %d bytes: use 1 to 20", n))
	}
	for _, c := range []byte(o.Form) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			faults = append(faults, fmt.Errorf("EncodingOptions.Form has the byte 0x%02x: use lower-case letters, digits and hyphens", c))
			break
		}
	}
	if o.Contract == "" {
		faults = append(faults, errors.New("EncodingOptions.Contract is empty: give the schema, or a text that changes with it"))
	}
	if o.Encode == nil {
		faults = append(faults, errors.New("EncodingOptions.Encode is nil: pass a function"))
	}
	if o.Decode == nil {
		faults = append(faults, errors.New("EncodingOptions.Decode is nil: pass a function"))
	}
	if o.MaxBytes < 0 {
		faults = append(faults, fmt.Errorf("EncodingOptions.MaxBytes is %d: use a positive number of bytes, or 0 for %d", o.MaxBytes, DefaultMaxResultBytes))
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxResultBytes
	}
	if faults != nil {
		return Encoding[T]{}, fmt.Errorf("ledger: new encoding: %w", errors.Join(faults...))
	}
	return Encoding[T]{
		identity: encodingIdentity(o.Form, o.Version, o.Contract),
		encode:   o.Encode, decode: o.Decode, max: o.MaxBytes,
	}, nil
}

// encodingIdentity fits [Outcome.Encoding] and is made of its characters.
func encodingIdentity(form string, version uint32, contract string) string {
	d := digest.Of("effectonce/encoding/1", form, strconv.FormatUint(uint64(version), 10), contract)
	return fmt.Sprintf("%s/%d:%s", form, version, hex.EncodeToString(d[:16]))
}

// Identity returns what is kept with each outcome: the form, the version and a
// digest of the contract. It holds no secret.
func (e Encoding[T]) Identity() string { return e.identity }

// write encodes a result, and returns it as a replay will give it.
func (e Encoding[T]) write(v T) (Outcome, T, error) {
	var none T
	data, err := e.encode(v)
	switch {
	case err != nil:
		return Outcome{}, none, NewError(CodeInvalid, fmt.Sprintf("the result of type %T can't be encoded; nothing was committed", v), err)
	case len(data) > e.max:
		return Outcome{}, none, NewError(CodeResultTooLarge, fmt.Sprintf("the result has %d bytes, the limit of its encoding is %d; nothing was committed", len(data), e.max), nil)
	case data == nil:
		data = []byte{}
	}
	again, err := e.decode(bytes.Clone(data))
	if err != nil {
		return Outcome{}, none, NewError(CodeInvalid, fmt.Sprintf("the result of type %T can't be read back as it was, so that it could never be replayed; nothing was committed", v), err)
	}
	return Outcome{Encoding: e.identity, Data: data}, again, nil
}

// read decodes a recorded outcome.
func (e Encoding[T]) read(o Outcome) (T, error) {
	var none T
	if o.Data == nil {
		return none, unreadable(errors.New("no result was recorded"))
	}
	if len(o.Data) > e.max {
		return none, unreadable(fmt.Errorf("%d bytes, the limit of the encoding is %d", len(o.Data), e.max))
	}
	v, err := e.decode(bytes.Clone(o.Data))
	if err != nil {
		return none, unreadable(fmt.Errorf("recorded as %s, read as %s: %w", o.Encoding, e.identity, err))
	}
	if o.Encoding != e.identity && !e.exact {
		again, err := e.encode(v)
		if err != nil || !bytes.Equal(again, o.Data) {
			return none, unreadable(fmt.Errorf("recorded as %s, which %s doesn't represent exactly", o.Encoding, e.identity))
		}
	}
	return v, nil
}

func unreadable(cause error) *Error {
	return NewError(CodeUnavailable, "the recorded result can't be read by this version of the operation: it was written by another one; the effect has happened and isn't run again", cause)
}
