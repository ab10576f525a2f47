package interceptor

import (
	"testing"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"

	"github.com/effectonce/effectonce/internal/clock"
	"github.com/effectonce/effectonce/ledger"
)

// TestALimitThatIsNotKnownRefusesNothingForGood.
func TestALimitThatIsNotKnownRefusesNothingForGood(t *testing.T) {
	t.Parallel()
	info := activity.Info{Namespace: "n"}
	answered := func(limit int) *limits {
		l, done := newLimits(0), make(chan struct{})
		close(done)
		l.asked["n"] = &question{done: done, limit: limit, at: clock.Now()}
		return l
	}
	for _, c := range []struct {
		fixed, limit, size int
		want               ledger.Code
	}{
		{0, 0, 1 << 20, ""},
		{0, 0, 3 << 20, ledger.CodeUnavailable},
		{0, 4 << 20, 3 << 20, ""},
		{0, 1 << 20, 3 << 20, ledger.CodeResultTooLarge},
		{10, 0, 100, ledger.CodeResultTooLarge},
		{4 << 20, 0, 3 << 20, ""},
	} {
		l := answered(c.limit)
		l.fixed = c.fixed
		err := l.check(t.Context(), info, &commonpb.Payloads{Payloads: []*commonpb.Payload{{Data: make([]byte, c.size)}}})
		require.Equal(t, c.want, ledger.CodeOf(err), "%+v", c)
	}
}
