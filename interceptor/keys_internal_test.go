package interceptor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/workflow"

	"github.com/effectonce/effectonce/ledger"
)

// named is what a key of some kind is made of.
type named struct {
	kind       string
	a, b, c    string
	number     uint64
	fourthByte byte // of a local call's request
}

func (n named) key(t *testing.T) ledger.Key {
	t.Helper()
	info := activity.Info{Namespace: n.a, ActivityID: n.c, ScheduledTime: time.Unix(0, int64(n.number>>1))}
	switch n.kind {
	case "business":
		return BusinessKey(n.a, uint32(n.number), n.b) //nolint:gosec // named has no more, see canonical
	case "local":
		return localKey(n.a, n.b, n.number, n.c, ledger.Fingerprint{3: n.fourthByte})
	case kindStandalone:
		info.ActivityRunID = n.b
	default:
		info.WorkflowExecution = workflow.Execution{RunID: n.b}
	}
	key, err := DeriveKey(info)
	require.NoError(t, err)
	return key
}

// canonical leaves out what a key of this kind doesn't have; false where it can
// have none.
func (n named) canonical() (named, bool) {
	switch n.kind {
	case "business":
		n.c, n.fourthByte, n.number = "", 0, uint64(uint32(n.number)) //nolint:gosec // a version has 32 bits
		return n, true
	case "local":
		return n, true
	default:
		n.fourthByte, n.number = 0, n.number&^1
		return n, n.b != "" && n.c != ""
	}
}

// TestGoldenKeysOfOtherKinds must never change, like goldenWorkflowKey.
func TestGoldenKeysOfOtherKinds(t *testing.T) {
	t.Parallel()
	for kind, golden := range map[string]string{
		kindStandalone: "c31ddeafcc8382a242a8e095df510c5fbb4916e2dce80320b5a1f1bf7d517cee",
		"local":        "11a6ee33173664be9ea225960a404bc018d7d318d0b53c236b0d7278a6e9601b",
	} {
		n := named{kind: kind, a: "default", b: "r", c: "5", number: 1700000000123456789 << 1, fourthByte: 9}
		require.Equal(t, golden, n.key(t).String(), kind)
	}
}

// FuzzKeys: two keys, of whichever kinds, are one only if all that they are made
// of is the same.
func FuzzKeys(f *testing.F) {
	kinds := []string{kindWorkflow, kindStandalone, "local", "business"}
	f.Add(byte(0), "default", "r", "5", uint64(1), byte(0), byte(1), "default", "r", "5", uint64(1), byte(0))
	f.Add(byte(0), "a", "bc", "d", uint64(0), byte(0), byte(0), "ab", "c", "d", uint64(0), byte(0))
	f.Add(byte(3), "a", "b", "", uint64(1), byte(0), byte(3), "a", "b", "x", uint64(1), byte(7))
	f.Add(byte(2), "a\x00", "\xff", "", uint64(1)<<40, byte(1), byte(2), "a", "\x00\xff", "", uint64(1)<<40, byte(1))
	f.Fuzz(func(t *testing.T, kind1 byte, a1, b1, c1 string, n1 uint64, r1 byte, kind2 byte, a2, b2, c2 string, n2 uint64, r2 byte) {
		one, ok1 := named{kinds[kind1%4], a1, b1, c1, n1, r1}.canonical()
		two, ok2 := named{kinds[kind2%4], a2, b2, c2, n2, r2}.canonical()
		if ok1 && ok2 {
			assert.Equal(t, one == two, one.key(t) == two.key(t))
		}
	})
}
