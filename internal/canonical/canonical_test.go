package canonical_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/canonical"
)

func TestJSON(t *testing.T) {
	t.Parallel()
	for document, want := range map[string]string{
		`{"b": 1, "a": {"d": [2, 1], "c": null}}`: `{"a":{"c":null,"d":[2,1]},"b":1}`,
		`1.0`:                                  `1`,
		`1e2`:                                  `100`,
		`9007199254740992`:                     `9007199254740992`,
		`9007199254740993`:                     `{"effectonce:integer":"9007199254740993"}`,
		`[-9007199254740993]`:                  `[{"effectonce:integer":"-9007199254740993"}]`,
		`{"n":123456789012345678901234567890}`: `{"n":{"effectonce:integer":"123456789012345678901234567890"}}`,
		`"<é\u0000>"`:                          `"<é\u0000>"`,
		` [] `:                                 `[]`,
	} {
		got, err := canonical.JSON([]byte(document))
		require.NoError(t, err, document)
		assert.Equal(t, want, string(got), document)
	}
}

func TestJSONRefusesWhatIsNotOneDocument(t *testing.T) {
	t.Parallel()
	for _, document := range []string{``, `{`, `{} {}`, `1]`, `nope`} {
		_, err := canonical.JSON([]byte(document))
		assert.Error(t, err, document)
	}
}
