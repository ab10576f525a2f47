package gate

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/valkey-io/valkey-go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

// Defaults of [Config].
const (
	DefaultPrefix        = "effectonce:"
	DefaultTimeout       = 100 * time.Millisecond
	DefaultProbe         = time.Second
	DefaultMaxEntryBytes = 64 << 10
	DefaultQueue         = 4096
	// StartTimeout bounds the first connection.
	StartTimeout = 5 * time.Second
)

// Config says how Valkey is reached and how far it may be waited for. Only
// Valkey.InitAddress is required; the zero value of each other field is its
// default.
type Config struct {
	// Valkey is how the server is reached: Valkey 7.2 and up, or Redis 7.0 and
	// up. Retries, client-side caching and reading from replicas are switched off
	// whatever it says. One connection is used for each server unless
	// PipelineMultiplex says otherwise, and one that is silent for ConnWriteTimeout
	// (default 1 s, or Timeout where that is longer) is given up.
	Valkey valkey.ClientOption
	// Prefix begins every key. Default "effectonce:".
	Prefix string
	// Timeout bounds one answer on the caller's path. A dead or stalled server
	// costs it once; then the breaker is open. Default 100 ms, at least 1 ms.
	Timeout time.Duration
	// Probe is how long the breaker stays open before one execution tries the
	// server again. Default 1 s, at least 1 ms.
	Probe time.Duration
	// MaxEntryBytes bounds a copied result; a larger one stays in the ledger
	// only. Default 64 KiB.
	MaxEntryBytes int
	// Queue is how many copies may wait to be sent; more are dropped, which
	// costs a ledger replay each. Default 4,096.
	Queue int
	// Logger gets one line when the gate is away and one when it is back.
	// Default: discards.
	Logger *slog.Logger
	// MeterProvider makes the gate's metrics. Default: the global one.
	MeterProvider metric.MeterProvider
}

func (c Config) withDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = DefaultPrefix
	}
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	if c.Probe == 0 {
		c.Probe = DefaultProbe
	}
	if c.MaxEntryBytes == 0 {
		c.MaxEntryBytes = DefaultMaxEntryBytes
	}
	if c.Queue == 0 {
		c.Queue = DefaultQueue
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	c.Valkey.DisableRetry = true
	c.Valkey.DisableCache = true
	c.Valkey.SendToReplicas, c.Valkey.Standalone.ReplicaAddress = nil, nil
	if c.Valkey.Dialer.Timeout == 0 {
		c.Valkey.Dialer.Timeout = StartTimeout
	}
	if c.Valkey.ConnWriteTimeout == 0 {
		c.Valkey.ConnWriteTimeout = c.commandTimeout()
	}
	if c.Valkey.PipelineMultiplex == 0 {
		c.Valkey.PipelineMultiplex = -1 // one connection
	}
	return c
}

// commandTimeout bounds what is asked of the server off the caller's path, where
// there is no hurry.
func (c Config) commandTimeout() time.Duration { return max(c.Timeout, time.Second) }

func (c Config) validate() error {
	var faults []error
	if len(c.Valkey.InitAddress) == 0 {
		faults = append(faults, errors.New("Config.Valkey.InitAddress is empty: name at least one host:port"))
	}
	if c.Valkey.ReplicaOnly {
		faults = append(faults, errors.New("Config.Valkey.ReplicaOnly is set: the gate writes, name the primary"))
	}
	if c.Timeout < time.Millisecond {
		faults = append(faults, fmt.Errorf("Config.Timeout is %s: use at least 1ms, or 0 for %s", c.Timeout, DefaultTimeout))
	}
	if c.Probe < time.Millisecond {
		faults = append(faults, fmt.Errorf("Config.Probe is %s: use at least 1ms, or 0 for %s", c.Probe, DefaultProbe))
	}
	if c.MaxEntryBytes < 0 {
		faults = append(faults, fmt.Errorf("Config.MaxEntryBytes is %d: use a positive number of bytes, or 0 for %d", c.MaxEntryBytes, DefaultMaxEntryBytes))
	}
	if c.Queue < 0 {
		faults = append(faults, fmt.Errorf("Config.Queue is %d: use a positive number, or 0 for %d", c.Queue, DefaultQueue))
	}
	return errors.Join(faults...)
}
