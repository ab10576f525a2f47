package interceptor

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.temporal.io/sdk/converter"

	"github.com/effectonce/effectonce/gate"
	"github.com/effectonce/effectonce/ledger"
)

// Defaults of [Options] and [Policy].
const (
	DefaultDrainTimeout = 10 * time.Second
	// RetentionMargin is added to an activity's ScheduleToClose timeout.
	RetentionMargin = time.Hour
	// maxRetryDelay bounds the delay that Temporal is asked for by a duplicate.
	maxRetryDelay = 30 * time.Second
)

// Options say where the ledger and the gate are and how activities run. Only
// Pool is required; the zero value of each other field is its default.
type Options struct {
	// Pool is the primary's connections. Required; borrowed.
	Pool *pgxpool.Pool
	// Schema is where the migrations put the ledger's tables. Default "public".
	Schema string
	// Tenants says that tenants' keys are used as well as the platform's.
	Tenants bool
	// Gate is how Valkey is reached. nil: no gate, PostgreSQL alone.
	Gate *gate.Config
	// Default is the policy of activities that Policies doesn't name.
	Default Policy
	// Policies are by activity type, as it is registered.
	Policies map[string]Policy
	// DataConverter and FailureConverter are the client's. They are taken from
	// the client where the plugin is in its options; where it is in the worker's
	// only, it never sees them, and DataConverter is required: pass the same
	// value that the client has, converter.GetDefaultDataConverter() by default.
	DataConverter    converter.DataConverter
	FailureConverter converter.FailureConverter
	// MaxResultBytes bounds one encoded result. Default: the namespace's own
	// limit, or 2 MiB where it doesn't say.
	MaxResultBytes int
	// DrainTimeout bounds how long a stopping worker waits for executions that
	// outlive it and for copies to the gate. Default 10 s.
	DrainTimeout time.Duration
	// Logger gets one line where a person should know. Default: discards.
	Logger *slog.Logger
	// TracerProvider makes the executions' spans. Default: the global one.
	TracerProvider trace.TracerProvider
	// MeterProvider makes the metrics. Default: the global one.
	MeterProvider metric.MeterProvider
}

// Mode says how an activity's effect is made to happen once.
type Mode int

// The modes.
const (
	// Transactional: the effect is in PostgreSQL, in the transaction that the
	// body asks for. The default; safe for activities that never ask.
	Transactional Mode = iota
	// Leased: the effect is outside PostgreSQL. The claim is committed before the
	// body, with a lease that bars others; heartbeats renew it; the outcome is
	// recorded only if the claim is still ours. [Key] and [Fence] are for the
	// outside API.
	Leased
	// Off: the body runs as if the plugin weren't there.
	Off
)

// Policy is how the activities of one type run. The zero value of each field
// is its default.
type Policy struct {
	// Mode. Default: [Transactional].
	Mode Mode
	// Begin says when the transaction begins. Default: late, when the body first
	// asks for it. [Register] begins at once.
	Begin ledger.Begin
	// Isolation of the transaction. Default: read committed.
	Isolation pgx.TxIsoLevel
	// Retention is how long a finished row is kept: the window in which a replay
	// is promised. Default: the activity's ScheduleToClose timeout plus one hour,
	// or 7 days without one.
	Retention time.Duration
	// Wait is how long a duplicate waits in place for the first one before it
	// asks Temporal for a retry; never over half the heartbeat timeout nor half
	// of what is left of the attempt. Default 5 s; negative: not at all.
	Wait time.Duration
	// Permanent says what happens where a permanent failure is recorded. Default:
	// it is replayed for a derived key, and run again for a business key.
	Permanent Permanent

	// Key returns the business key of an execution from its arguments, as they
	// were passed; see [KeyOf]. The empty text is none. [WithKey] in the workflow
	// goes before it. Default: none, the key is derived.
	Key func(args []any) (string, error)
	// Keys says what happens where there is no business key. Default: derived.
	Keys Keys
	// Result says how much of a business key's result the ledger keeps.
	// Default: all of it.
	Result Keep
	// Late says what happens to an attempt that comes later than Retention after
	// the activity was scheduled, and whose key has no row: an earlier attempt may
	// have committed and been forgotten. Default: it runs and is reported.
	Late Late

	// Operation names the work that a business key is for. Two activity types with
	// the same business key don't meet unless their policies name the same
	// operation. Default: the activity type.
	Operation string
	// Version of the operation: raising it makes new business keys. Default 0.
	Version uint32
	// Owner returns whom the key belongs to from the arguments; see [TenantOf].
	// [WithTenant] in the workflow goes before it. Default: the platform.
	Owner func(args []any) (ledger.Owner, error)
	// Fingerprint renders the request of a business key: the same key with
	// another request is refused. Default: the arguments as canonical JSON (RFC
	// 8785, integers beyond 2^53 kept apart).
	Fingerprint func(args []any) ([]byte, error)
}

// Keep says how much of a business key's result the ledger keeps.
type Keep int

const (
	// KeepResult keeps all of it. The default.
	KeepResult Keep = iota
	// KeepMarker keeps the fact alone; the gate has the result for as long as it
	// has it. A duplicate that finds only the marker is answered with
	// [ErrTypeAlreadyCommitted]; a result without payload is replayed as such.
	// Derived keys' results are kept all the same: their retries need them.
	KeepMarker
)

// Late says what happens to an attempt that comes later than the ledger can
// remember.
type Late int

const (
	// LateReport runs it; the span, a counter and a log line tell. The default.
	LateReport Late = iota
	// LateRefuse answers with [ErrTypeExpired].
	LateRefuse
)

// Permanent says what happens where a permanent failure is recorded.
type Permanent int

const (
	// PermanentDefault replays for a derived key and runs again for a business key.
	PermanentDefault Permanent = iota
	// PermanentReplay replays the failure.
	PermanentReplay
	// PermanentRerun runs the body again.
	PermanentRerun
)

// Keys says what happens where there is no business key.
type Keys int

const (
	// KeysDerived derives the key. The default.
	KeysDerived Keys = iota
	// KeysOptional derives the key too, and counts it: the phase before requiring
	// business keys. The counter is idempotency_request_id_empty_total.
	KeysOptional
	// KeysRequired refuses the execution.
	KeysRequired
)

func (o Options) withDefaults() Options {
	if o.DrainTimeout == 0 {
		o.DrainTimeout = DefaultDrainTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Policies = maps.Clone(o.Policies)
	return o
}

func (o Options) validate() error {
	var faults []error
	if o.Pool == nil {
		faults = append(faults, errors.New("Options.Pool is nil: pass the pool of the primary"))
	}
	if o.MaxResultBytes < 0 {
		faults = append(faults, fmt.Errorf("Options.MaxResultBytes is %d: use a positive number of bytes, or 0 for the namespace's limit", o.MaxResultBytes))
	}
	if o.DrainTimeout < 0 {
		faults = append(faults, fmt.Errorf("Options.DrainTimeout is %s: use a positive duration, or 0 for %s", o.DrainTimeout, DefaultDrainTimeout))
	}
	faults = append(faults, o.Default.validate("Options.Default"))
	for _, name := range slices.Sorted(maps.Keys(o.Policies)) {
		if name == "" {
			faults = append(faults, errors.New("Options.Policies has an empty name: name the activity type"))
		}
		faults = append(faults, o.Policies[name].validate(fmt.Sprintf("Options.Policies[%q]", name)))
	}
	return errors.Join(faults...)
}

func (p Policy) validate(name string) error {
	var faults []error
	if p.Mode != Transactional && p.Mode != Leased && p.Mode != Off {
		faults = append(faults, fmt.Errorf("%s.Mode is %d: use Transactional, Leased or Off", name, p.Mode))
	}
	if p.Mode == Leased && (p.Begin != ledger.BeginLate || p.Isolation != "") {
		faults = append(faults, fmt.Errorf("%s.Begin or Isolation is set: the mode Leased has no transaction, leave them out", name))
	}
	if p.Begin != ledger.BeginLate && p.Begin != ledger.BeginAtOnce {
		faults = append(faults, fmt.Errorf("%s.Begin is %d: use ledger.BeginLate or ledger.BeginAtOnce", name, p.Begin))
	}
	switch p.Isolation {
	case "", pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable:
	default:
		faults = append(faults, fmt.Errorf("%s.Isolation is %q: use pgx.ReadCommitted, pgx.RepeatableRead or pgx.Serializable", name, string(p.Isolation)))
	}
	if p.Permanent < PermanentDefault || p.Permanent > PermanentRerun {
		faults = append(faults, fmt.Errorf("%s.Permanent is %d: use PermanentDefault, PermanentReplay or PermanentRerun", name, p.Permanent))
	}
	if p.Keys < KeysDerived || p.Keys > KeysRequired {
		faults = append(faults, fmt.Errorf("%s.Keys is %d: use KeysDerived, KeysOptional or KeysRequired", name, p.Keys))
	}
	if p.Result != KeepResult && p.Result != KeepMarker {
		faults = append(faults, fmt.Errorf("%s.Result is %d: use KeepResult or KeepMarker", name, p.Result))
	}
	if p.Late != LateReport && p.Late != LateRefuse {
		faults = append(faults, fmt.Errorf("%s.Late is %d: use LateReport or LateRefuse", name, p.Late))
	}
	if p.Retention != 0 && p.Retention < time.Second {
		faults = append(faults, fmt.Errorf("%s.Retention is %s: use at least 1s, or 0 for the default", name, p.Retention))
	}
	return errors.Join(faults...)
}

func (o Options) policy(activityType string) Policy {
	if p, ok := o.Policies[activityType]; ok {
		return p
	}
	return o.Default
}
