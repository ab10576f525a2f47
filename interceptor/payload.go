package interceptor

import (
	"context"
	"errors"
	"fmt"
	"slices"

	commonpb "go.temporal.io/api/common/v1"
	failurepb "go.temporal.io/api/failure/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"
	"google.golang.org/protobuf/proto"

	"github.com/effectonce/effectonce/ledger"
)

// The encodings of what the ledger keeps of an activity.
const (
	// encodingResult: a marshaled temporal.api.common.v1.Payloads, or no data for
	// a result without payload.
	encodingResult = "temporal/payloads/1"
	// encodingFailure: a marshaled temporal.api.failure.v1.Failure, or no data
	// where a retryable failure is only counted.
	encodingFailure = "temporal/failure/1"
)

// codec turns results and failures into what Temporal would have got from the
// SDK, and back.
type codec struct {
	data    converter.DataConverter
	failure converter.FailureConverter
}

func newCodec(data converter.DataConverter, failure converter.FailureConverter) codec {
	if data == nil {
		data = converter.GetDefaultDataConverter()
	}
	if failure == nil {
		failure = temporal.GetDefaultFailureConverter()
	}
	return codec{data: data, failure: failure}
}

// serializationContext is the one that the SDK encodes an activity's result with.
func serializationContext(info activity.Info) converter.ActivitySerializationContext {
	c := converter.ActivitySerializationContext{
		Namespace:    info.Namespace,
		WorkflowID:   info.WorkflowExecution.ID,
		ActivityType: info.ActivityType.Name,
		TaskQueue:    info.TaskQueue,
		IsLocal:      info.IsLocalActivity,
	}
	if info.WorkflowType != nil {
		c.WorkflowType = info.WorkflowType.Name
	}
	return c
}

// encodeResult encodes as the SDK does: serialization context first, then the
// activity's context, then ToPayloads. A nil result has no payload.
func (c codec) encodeResult(ctx context.Context, info activity.Info, result any) (ledger.Outcome, *commonpb.Payloads, error) {
	o := ledger.Outcome{Encoding: encodingResult}
	if result == nil {
		return o, nil, nil
	}
	payloads, ok := result.(*commonpb.Payloads)
	if !ok {
		data := converter.WithDataConverterSerializationContext(c.data, serializationContext(info))
		if aware, ok := data.(workflow.ContextAware); ok {
			data = aware.WithContext(ctx)
		}
		var err error
		if payloads, err = data.ToPayloads(result); err != nil {
			return o, nil, err
		}
	}
	if payloads == nil {
		return o, nil, nil
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(payloads)
	if err != nil {
		return o, nil, fmt.Errorf("marshal the result's payloads: %w", err)
	}
	o.Data = append([]byte{}, b...) // never nil: an empty list of payloads isn't none
	return o, payloads, nil
}

// decode reads what the ledger kept: the result as payloads, which the SDK
// passes on untouched, or the failure as the error that it was.
func (c codec) decode(info activity.Info, r ledger.Result) (any, error) {
	switch {
	case r.Status == ledger.Completed && r.Outcome.Encoding == encodingResult:
		if r.Outcome.Data == nil {
			return nil, nil
		}
		payloads := &commonpb.Payloads{}
		if err := proto.Unmarshal(r.Outcome.Data, payloads); err != nil {
			return nil, undecodable(err)
		}
		return payloads, nil
	case r.Status == ledger.FailedPermanent && r.Outcome.Encoding == encodingFailure && r.Outcome.Data != nil:
		failure := &failurepb.Failure{}
		if err := proto.Unmarshal(r.Outcome.Data, failure); err != nil {
			return nil, undecodable(err)
		}
		return nil, converter.WithFailureConverterSerializationContext(c.failure, serializationContext(info)).FailureToError(failure)
	case r.Status == ledger.FailedPermanent && r.Outcome.Encoding == ledger.BarredEncoding:
		return nil, ledger.NewError(ledger.CodeInvalid, "an earlier execution ended the ledger's transaction itself: what it wrote may stand, and this key never runs again; look at the effect by hand", nil)
	default:
		return nil, undecodable(fmt.Errorf("status %s, encoding %q", r.Status, r.Outcome.Encoding))
	}
}

func undecodable(cause error) error {
	return ledger.NewError(ledger.CodeUnavailable, "the recorded outcome can't be read: it was written by another program or a newer version; the effect has happened and isn't run again", cause)
}

// encodeFailure says how a body's error is recorded: a permanent one whole, to
// be replayed; a retryable one only counted. It follows the server's rule, which
// looks at the outermost failure's kind, flag and type only.
func (c codec) encodeFailure(info activity.Info, bodyErr error) (f ledger.Failure) {
	if _, ours := bodyErr.(*ledger.Error); ours || errors.Is(bodyErr, activity.ErrResultPending) { //nolint:errorlint // as toTemporal does
		return ledger.Failure{}
	}
	defer func() {
		if recover() != nil { // ErrorToFailure panics on details that it can't serialise
			f = ledger.Failure{}
		}
	}()
	failure := converter.WithFailureConverterSerializationContext(c.failure, serializationContext(info)).ErrorToFailure(bodyErr)
	if !permanent(info, failure) {
		return ledger.Failure{Status: ledger.FailedRetryable, Outcome: ledger.Outcome{Encoding: encodingFailure}}
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(failure)
	if err != nil {
		return ledger.Failure{}
	}
	return ledger.Failure{Status: ledger.FailedPermanent, Outcome: ledger.Outcome{Encoding: encodingFailure, Data: append([]byte{}, b...)}}
}

func permanent(info activity.Info, f *failurepb.Failure) bool {
	if server := f.GetServerFailureInfo(); server != nil {
		return server.GetNonRetryable()
	}
	app := f.GetApplicationFailureInfo()
	if app == nil {
		return false // canceled, timed out, terminated: not the body's own verdict
	}
	return app.GetNonRetryable() ||
		info.RetryPolicy != nil && slices.Contains(info.RetryPolicy.NonRetryableErrorTypes, app.GetType())
}
