package gate_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
)

// last is the newest span.
func (b *bundle) last(t *testing.T) trace.ReadOnlySpan {
	t.Helper()
	spans := b.recorder.Ended()
	require.NotEmpty(t, spans)
	return spans[len(spans)-1]
}

// attribute is one of the newest span's.
func (b *bundle) attribute(t *testing.T, key attribute.Key) attribute.Value {
	t.Helper()
	for _, a := range b.last(t).Attributes() {
		if a.Key == key {
			return a.Value
		}
	}
	return attribute.Value{}
}

// events are the names of the newest span's.
func (b *bundle) events(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, e := range b.last(t).Events() {
		names = append(names, e.Name)
	}
	return names
}
