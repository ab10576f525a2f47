package interceptor

import (
	"context"
	"errors"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/effectonce/effectonce/internal/clock"
	"github.com/effectonce/effectonce/ledger"
)

// The types of the application errors that the plugin answers Temporal with.
// Workflows tell them apart by temporal.ApplicationError's Type method.
const (
	ErrTypeInFlight         = "effectonce.InFlight"
	ErrTypeAlreadyCommitted = "effectonce.AlreadyCommitted"
	ErrTypeMismatch         = "effectonce.Mismatch"
	ErrTypeInvalid          = "effectonce.Invalid"
	ErrTypeResultTooLarge   = "effectonce.ResultTooLarge"
	ErrTypeQuota            = "effectonce.Quota"
	ErrTypeOverloaded       = "effectonce.Overloaded"
	ErrTypeFenced           = "effectonce.Fenced"
	ErrTypeExpired          = "effectonce.Expired"
	ErrTypeUnavailable      = "effectonce.Unavailable"
)

func errType(c ledger.Code) string {
	switch c {
	case ledger.CodeInFlight:
		return ErrTypeInFlight
	case ledger.CodeAlreadyCommitted:
		return ErrTypeAlreadyCommitted
	case ledger.CodeMismatch:
		return ErrTypeMismatch
	case ledger.CodeResultTooLarge:
		return ErrTypeResultTooLarge
	case ledger.CodeQuota:
		return ErrTypeQuota
	case ledger.CodeOverloaded:
		return ErrTypeOverloaded
	case ledger.CodeFenced:
		return ErrTypeFenced
	case ledger.CodeExpired:
		return ErrTypeExpired
	case ledger.CodeUnavailable:
		return ErrTypeUnavailable
	default:
		return ErrTypeInvalid
	}
}

// toTemporal turns an error with a code into what Temporal understands, and
// hands the body's own errors on as they are, whatever they wrap: the server
// looks at the outermost error only. The private cause stays on this side of the
// wire.
func toTemporal(ctx context.Context, info activity.Info, err error) error {
	e, ok := err.(*ledger.Error) //nolint:errorlint // the outermost alone is the plugin's
	if !ok {
		return err
	}
	options := temporal.ApplicationErrorOptions{NonRetryable: !e.Code.Retryable()}
	if e.Code == ledger.CodeInFlight {
		options.Category = temporal.ApplicationErrorCategoryBenign
		options.NextRetryDelay = retryDelay(info, e.RetryAfter)
	} else if cause := errors.Unwrap(e); cause != nil {
		activity.GetLogger(ctx).Warn(e.Error(), "cause", cause)
	}
	return temporal.NewApplicationErrorWithOptions(e.Error(), errType(e.Code), options)
}

// retryDelay is the lease left, at most 30 s. A delay that passed the end of
// the activity would fail it at once, so that it stays under half of what is
// left until then.
func retryDelay(info activity.Info, lease time.Duration) time.Duration {
	delay := min(max(lease, 100*time.Millisecond), maxRetryDelay)
	if info.ScheduleToCloseTimeout > 0 {
		left := clock.Until(info.ScheduledTime.Add(info.ScheduleToCloseTimeout))
		delay = max(min(delay, left/2), time.Millisecond)
	}
	return delay
}
