package ledger_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/ledger"
)

func TestParseClientKey(t *testing.T) {
	t.Parallel()
	pattern := regexp.MustCompile(ledger.ClientKeyPattern)
	for text, want := range map[string]string{
		"0190b4f2-7c3e-7a66-9f1d-2f6b7d1c9e55": "",
		strings.Repeat("!", 16):                "",
		strings.Repeat("~", 256):               "",
		"":                                     "the key has 0 bytes: send 16 to 256 visible ASCII characters",
		strings.Repeat("k", 15):                "the key has 15 bytes",
		strings.Repeat("k", 257):               "the key has 257 bytes",
		"sixteen or more, spaced":              "the key's byte 8 is 0x20",
		"0123456789abcdé":                      "the key's byte 15 is 0xc3",
		"0123456789abcdef\n":                   "the key's byte 17 is 0x0a",
		"\x7f0123456789abcdef":                 "the key's byte 1 is 0x7f",
	} {
		key, err := ledger.ParseClientKey(text)
		assert.Equal(t, want == "", pattern.MatchString(text), "the pattern says the same of %q", text)
		if want == "" {
			require.NoError(t, err)
			assert.False(t, key.IsZero())
			continue
		}
		require.ErrorContains(t, err, want)
		assert.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
		assert.True(t, key.IsZero())
		if text != "" {
			assert.NotContains(t, err.Error(), text)
		}
	}
}

func TestNewScope(t *testing.T) {
	t.Parallel()
	s, err := ledger.NewScope(ledger.Tenant(7), "müller")
	require.NoError(t, err)
	assert.Equal(t, ledger.Tenant(7), s.Owner())
	assert.False(t, s.IsZero())
	_, err = ledger.NewScope(ledger.Tenant(0), "\xff")
	for _, text := range []string{"not UTF-8", "the owner is tenant 0"} {
		require.ErrorContains(t, err, text)
	}
	for _, caller := range []string{"", strings.Repeat("c", 257)} {
		_, err = ledger.NewScope(ledger.Platform(), caller)
		assert.Equal(t, ledger.CodeInvalid, ledger.CodeOf(err))
		require.ErrorContains(t, err, "use 1 to 256, such as a user's id")
	}
}
