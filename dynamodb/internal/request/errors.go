package request

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// Outcome is the outcome of a failed request, as far as its error shows it.
type Outcome int

// The outcomes of a request.
const (
	Rejected   Outcome = iota // not applied, and a repetition will fail as well
	NotApplied                // not applied, but a repetition may succeed
	Unknown                   // it may have been applied; a repetition shows that
)

// NewError returns an error that this program has detected, with the outcome of the request.
func NewError(outcome Outcome, text string) error { return &outcomeError{outcome, text} }

type outcomeError struct {
	outcome Outcome
	text    string
}

func (e *outcomeError) Error() string { return e.text }

// notAppliedCodes are errors with status 400 that may disappear in a repetition.
var notAppliedCodes = []string{
	"ThrottlingException", "Throttling", "ThrottledException", "RequestLimitExceeded", "RequestThrottled", "RequestThrottledException",
	"ProvisionedThroughputExceededException", "LimitExceededException", "SlowDown", "BandwidthLimitExceeded",
	"TransactionConflictException", "TransactionInProgressException", "ReplicatedWriteConflictException",
	"ContinuousBackupsUnavailableException", // of a table that was created just now
	"RequestTimeTooSkewed", "PriorRequestNotComplete",
}

// Classify returns the outcome of an error of the SDK, or of NewError.
func Classify(err error) Outcome {
	if errors.Is(err, storage.ErrFenced) || errors.Is(err, storage.ErrClosed) {
		return Rejected
	}
	var own *outcomeError
	if errors.As(err, &own) {
		return own.outcome
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		if neverSent(err) {
			return Rejected
		}
		return Unknown
	}
	if slices.Contains(notAppliedCodes, api.ErrorCode()) {
		return NotApplied
	}
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.HTTPStatusCode() >= http.StatusInternalServerError {
		return Unknown
	}
	switch api.ErrorCode() {
	case "InternalServerError", "InternalFailure", "ServiceUnavailable", "ServiceUnavailableException", "InternalServerErrorException":
		return Unknown
	}
	return Rejected
}

// neverSent recognises permanent failures inside the SDK before anything was sent.
func neverSent(err error) bool {
	var params smithy.InvalidParamsError
	if errors.As(err, &params) {
		return true
	}
	text := err.Error()
	for _, cause := range []string{"get identity:", "resolve auth scheme:", "Invalid Configuration: Missing Region", "not resolve endpoint"} {
		if strings.Contains(text, cause) {
			return true
		}
	}
	return false
}

// Inconsistent returns the error of a call whose context ended. cause may be nil.
func Inconsistent(ctx context.Context, cause error) error {
	if err := ctx.Err(); err != nil {
		if cause == nil || errors.Is(cause, err) {
			return fmt.Errorf("%w: %w", storage.ErrInconsistent, err)
		}
		return driver.Unreachable(fmt.Errorf("%w: %w: %w", storage.ErrInconsistent, err, Plain(cause)))
	}
	return driver.Unreachable(fmt.Errorf("%w: %w", storage.ErrInconsistent, Plain(cause)))
}

// Plain reduces an error of the SDK to the operation and the service's message, without request ids.
func Plain(err error) error {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return err
	}
	name := "DynamoDB"
	var operation *smithy.OperationError
	if errors.As(err, &operation) {
		name = operation.Operation()
	}
	return &serviceError{text: fmt.Sprintf("%s: %s: %s", name, api.ErrorCode(), api.ErrorMessage()), err: err}
}

type serviceError struct {
	text string
	err  error
}

func (e *serviceError) Error() string { return e.text }
func (e *serviceError) Unwrap() error { return e.err }

// HasCode reports whether err is an answer of the service with one of these codes.
func HasCode(err error, codes ...string) bool {
	var api smithy.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode())
}
