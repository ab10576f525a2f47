package gate

// What the tests look at from outside.
var (
	Decode     = decode
	ErrForeign = errForeign
	NewToken   = newToken
)

// Encode returns the token's wire form.
func (t Token) Encode() string { return t.encode() }

// Encode returns the entry's wire form.
func (e Entry) Encode() string { return e.encode() }

// Bars reports whether the token bars the holder of mine.
func (t Token) Bars(mine Token) bool { return t.bars(mine) }
