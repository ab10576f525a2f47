package ledger

import (
	"context"
	"errors"
	"net/http"
)

// The numbers of gRPC's status codes that errors are answered with, as
// google.golang.org/grpc/codes has them.
const (
	grpcOK                 uint32 = 0
	grpcCanceled           uint32 = 1
	grpcUnknown            uint32 = 2
	grpcInvalidArgument    uint32 = 3
	grpcDeadlineExceeded   uint32 = 4
	grpcAlreadyExists      uint32 = 6
	grpcResourceExhausted  uint32 = 8
	grpcFailedPrecondition uint32 = 9
	grpcAborted            uint32 = 10
	grpcUnavailable        uint32 = 14
)

// status says what a code is in other protocols.
func (c Code) status() (inHTTP int, inGRPC uint32) {
	switch c {
	case CodeInFlight, CodeFenced:
		return http.StatusConflict, grpcAborted
	case CodeAlreadyCommitted:
		return http.StatusConflict, grpcAlreadyExists
	case CodeMismatch:
		return http.StatusUnprocessableEntity, grpcInvalidArgument
	case CodeInvalid:
		return http.StatusBadRequest, grpcInvalidArgument
	case CodeResultTooLarge:
		return http.StatusInternalServerError, grpcResourceExhausted // the request was in order
	case CodeQuota:
		return http.StatusTooManyRequests, grpcResourceExhausted
	case CodeOverloaded:
		return http.StatusServiceUnavailable, grpcResourceExhausted
	case CodeExpired:
		return http.StatusGone, grpcFailedPrecondition
	case CodeUnavailable:
		return http.StatusServiceUnavailable, grpcUnavailable
	default:
		return http.StatusInternalServerError, grpcUnknown
	}
}

// HTTPStatus returns the status of an HTTP answer with err: 200 for nil, 504 for
// a deadline and 503 for a cancellation that have no code, 500 for an error of
// the body's own. [Error.RetryAfter] fits the header Retry-After.
func HTTPStatus(err error) int {
	var e *Error
	switch {
	case err == nil:
		return http.StatusOK
	case errors.As(err, &e):
		status, _ := e.Code.status()
		return status
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	case errors.Is(err, context.Canceled):
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

// GRPCStatus returns the number of the gRPC status code for err, to be converted
// to google.golang.org/grpc/codes.Code: 0 (OK) for nil, 4 (DeadlineExceeded) and
// 1 (Canceled) for a context's error that has no code, 2 (Unknown) for an error
// of the body's own.
func GRPCStatus(err error) uint32 {
	var e *Error
	switch {
	case err == nil:
		return grpcOK
	case errors.As(err, &e):
		_, status := e.Code.status()
		return status
	case errors.Is(err, context.DeadlineExceeded):
		return grpcDeadlineExceeded
	case errors.Is(err, context.Canceled):
		return grpcCanceled
	default:
		return grpcUnknown
	}
}
