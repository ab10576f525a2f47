// Package telemetry has what the library's packages share of OpenTelemetry: its
// scope, an instrument that two of them use, and attributes that cost nothing to
// name again. It imports the OpenTelemetry API alone.
package telemetry

import (
	"sync"

	"go.opentelemetry.io/otel/metric"
)

// Scope names the library to OpenTelemetry.
const Scope = "github.com/effectonce/effectonce"

// Waiting counts the duplicates that wait in place, at the gate or at the ledger.
func Waiting(meter metric.Meter) (metric.Int64UpDownCounter, error) {
	return meter.Int64UpDownCounter("effectonce.executions.waiting", metric.WithUnit("{execution}"),
		metric.WithDescription("Duplicates that wait in place for the execution that holds their key."))
}

// Labels keeps the options that say a measurement's attributes, so that it
// allocates nothing. It keeps those of at most maxLabels keys: a name that should
// be one of few is the caller's all the same. The zero value is ready to use.
type Labels[K comparable, O any] struct {
	mu   sync.RWMutex
	kept map[K][]O
}

const maxLabels = 1024

// Of returns the options for key, which make makes the first time.
func (l *Labels[K, O]) Of(key K, make func(K) O) []O {
	l.mu.RLock()
	options, ok := l.kept[key]
	l.mu.RUnlock()
	if ok {
		return options
	}
	options = []O{make(key)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kept == nil {
		l.kept = map[K][]O{}
	}
	if len(l.kept) < maxLabels {
		l.kept[key] = options
	}
	return options
}
