package ledger

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/effectonce/effectonce/internal/digest"
)

// Scope is on whose behalf a typed operation runs: whose rows it makes, and who
// calls. The program makes it from what it has verified (a session, a token, a
// queue's own name), and never from the key or the input: callers of different
// scopes never meet, whatever keys they submit. The zero Scope is refused.
type Scope struct {
	owner  Owner
	caller [32]byte // a digest: whatever prints the scope doesn't name the caller
}

// MaxCallerBytes bounds the caller's name in a [Scope].
const MaxCallerBytes = 256

// NewScope returns the scope of a caller under an owner. The caller's name is
// any UTF-8 text of 1 to [MaxCallerBytes] bytes that is the caller's for good,
// such as a user's id; it is stored only as a part of the key's digest.
//
// A scope is no permission. Whether the caller may do this at all is to be
// decided before each [Operation.Run], because a replay answers with what was
// allowed then.
func NewScope(owner Owner, caller string) (Scope, error) {
	var faults []error
	if n := len(caller); n == 0 || n > MaxCallerBytes {
		faults = append(faults, fmt.Errorf("the caller's name has %d bytes: use 1 to %d, such as a user's id", n, MaxCallerBytes))
	}
	if !utf8.ValidString(caller) {
		faults = append(faults, errors.New("the caller's name is not UTF-8: use its text, not its bytes"))
	}
	if id, ok := owner.TenantID(); ok && id <= 0 {
		faults = append(faults, fmt.Errorf("the owner is tenant %d: use the tenant's id, or Platform()", id))
	}
	if faults != nil {
		return Scope{}, NewError(CodeInvalid, "new scope: "+errors.Join(faults...).Error(), nil)
	}
	return Scope{owner: owner, caller: digest.Of("effectonce/caller/1", caller)}, nil
}

// Owner returns whose rows the scope's are.
func (s Scope) Owner() Owner { return s.owner }

// IsZero reports whether the scope was never made.
func (s Scope) IsZero() bool { return s == Scope{} }

// Format implements fmt.Formatter: it prints the owner, never the caller.
func (s Scope) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "ledger.Scope{%s, caller redacted}", s.owner)
}

// Bounds of a [ClientKey], in bytes.
const (
	MinClientKeyBytes = 16
	MaxClientKeyBytes = 256
)

// ClientKeyPattern is the form of a [ClientKey] as a regular expression that
// JavaScript, OpenAPI and Go read alike: 16 to 256 visible ASCII characters.
const ClientKeyPattern = `^[!-~]{16,256}$`

// ClientKey is a key as a client submits it, such as the header Idempotency-Key.
// It says which of the caller's requests this is, and nothing of who the caller
// is. It prints redacted under every format verb. The zero ClientKey is refused.
type ClientKey struct {
	digest [32]byte // of the text, which isn't kept
	bytes  int
}

// ParseClientKey returns the key with that text, which must have the form of
// [ClientKeyPattern]: at least 16 bytes, so that a client's counter isn't taken
// for a key by mistake. The error has [CodeInvalid] and doesn't hold the text.
func ParseClientKey(text string) (ClientKey, error) {
	if n := len(text); n < MinClientKeyBytes || n > MaxClientKeyBytes {
		return ClientKey{}, NewError(CodeInvalid, fmt.Sprintf("the key has %d bytes: send %d to %d visible ASCII characters, such as a UUID", n, MinClientKeyBytes, MaxClientKeyBytes), nil)
	}
	for i := range len(text) {
		if c := text[i]; c < '!' || c > '~' {
			return ClientKey{}, NewError(CodeInvalid, fmt.Sprintf("the key's byte %d is 0x%02x: send %d to %d visible ASCII characters, such as a UUID", i+1, c, MinClientKeyBytes, MaxClientKeyBytes), nil)
		}
	}
	return ClientKey{digest: digest.Of("effectonce/client-key/1", text), bytes: len(text)}, nil
}

// IsZero reports whether the key was never parsed.
func (k ClientKey) IsZero() bool { return k == ClientKey{} }

// Format implements fmt.Formatter: it prints the size, never the text.
func (k ClientKey) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "ledger.ClientKey{%d bytes (redacted)}", k.bytes)
}
