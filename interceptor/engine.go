package interceptor

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.temporal.io/sdk/activity"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/internal/telemetry"
	"github.com/effectonce/effectonce/ledger"
)

// engine is what runs between a plugin's first start and its last stop.
type engine struct {
	store  *ledger.Store
	gate   *gate.Gate // nil without one
	runner *gate.Runner
	codec  codec
	limits *limits
	memory *memory
	empty  metric.Int64Counter // executions without a business key where one is wanted
}

// newEngine makes everything and starts it; after an error nothing is left.
func newEngine(ctx context.Context, o Options, c codec) (_ *engine, err error) {
	r := &engine{codec: c, limits: newLimits(o.MaxResultBytes)}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), o.DrainTimeout)
			defer cancel()
			err = errors.Join(err, r.close(ctx))
		}
	}()
	r.store, err = ledger.NewStore(ledger.Config{
		Pool: o.Pool, Schema: o.Schema, Tenants: o.Tenants, Logger: o.Logger, MaxResultBytes: max(o.MaxResultBytes, maxResultBytes),
		Limits:           ledger.Limits{MaxConcurrent: -1, Timeout: -1}, // the worker's slots and the attempt's deadline
		LongestRetention: o.longestRetention(), MeterProvider: o.MeterProvider,
	})
	if err != nil {
		return nil, err
	}
	if err := r.store.Validate(ctx); err != nil {
		return nil, err
	}
	meters := o.MeterProvider
	if meters == nil {
		meters = otel.GetMeterProvider()
	}
	meter := meters.Meter(telemetry.Scope)
	if r.memory, err = newMemory(meter); err != nil {
		return nil, err
	}
	r.empty, err = meter.Int64Counter("idempotency_request_id_empty_total",
		metric.WithDescription("Executions without a business key whose policy wants one."))
	if err != nil {
		return nil, err
	}
	config := gate.RunnerConfig{Ledger: r.store, TracerProvider: o.TracerProvider, MeterProvider: o.MeterProvider, Logger: o.Logger}
	if o.Gate != nil {
		g := *o.Gate
		if g.Logger == nil {
			g.Logger = o.Logger
		}
		if g.MeterProvider == nil {
			g.MeterProvider = o.MeterProvider
		}
		if r.gate, err = gate.New(g); err != nil {
			return nil, err
		}
		if err := r.gate.Start(ctx); err != nil {
			return nil, err
		}
		config.Gate = r.gate
	}
	if r.runner, err = gate.NewRunner(config); err != nil {
		return nil, err
	}
	return r, nil
}

// keyless counts or refuses an execution that has no business key.
func (r *engine) keyless(ctx context.Context, info activity.Info, policy Policy) error {
	if policy.Keys == KeysDerived {
		return nil
	}
	r.empty.Add(ctx, 1, metric.WithAttributes(attribute.String("operation", info.ActivityType.Name)))
	if policy.Keys == KeysRequired {
		return noKey(info, errKeyRequired)
	}
	return nil
}

// maxResultBytes bounds what the ledger takes at all; what Temporal takes is
// checked before, in limits.
const maxResultBytes = 64 << 20

// close drains the executions' clean-up first, then the copies to the gate.
func (r *engine) close(ctx context.Context) error {
	var faults []error
	if r.store != nil {
		faults = append(faults, r.store.Close(ctx))
	}
	if r.gate != nil {
		faults = append(faults, r.gate.Close(ctx))
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("interceptor: close: %w", err)
	}
	return nil
}
