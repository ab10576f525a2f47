package digest_test

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/effectonce/effectonce/internal/digest"
)

// The digests name rows: they must never change.
func TestGolden(t *testing.T) {
	t.Parallel()
	for want, parts := range map[string][]string{
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855": nil,
		"601d5476e2ccfe2c87a2bba7a322659734a05749d5b5aa781f513e4912db0d5f": {"ab", "c"},
	} {
		d := digest.Of(parts...)
		assert.Equal(t, want, hex.EncodeToString(d[:]))
	}
}

func TestPartsDoNotRunIntoEachOther(t *testing.T) {
	t.Parallel()
	assert.NotEqual(t, digest.Of("ab", "c"), digest.Of("a", "bc"))
	assert.NotEqual(t, digest.Of("ab"), digest.Of("ab", ""))
}
