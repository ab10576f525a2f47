package telemetry_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/effectonce/effectonce/internal/telemetry"
)

// TestLabelsAreMadeOnce: and those of a caller who makes up names without end
// are made each time, and not kept.
func TestLabelsAreMadeOnce(t *testing.T) {
	t.Parallel()
	var labels telemetry.Labels[int, int]
	made := 0
	double := func(n int) int {
		made++
		return 2 * n
	}
	for range 3 {
		for n := range 2000 {
			require.Equal(t, []int{2 * n}, labels.Of(n, double))
		}
	}
	require.Equal(t, 1024+3*(2000-1024), made)
}
