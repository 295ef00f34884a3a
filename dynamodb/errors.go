package dynamodb

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
)

// outcome is what an error of the SDK says about the request.
type outcome int

const (
	// refused: DynamoDB did not do it and will not do it.
	refused outcome = iota
	// busy: DynamoDB did not do it, but may if asked again.
	busy
	// unknown: it may have been done. Asking again tells.
	unknown
)

// busyCodes are answers of status 400 that another try may mend.
var busyCodes = []string{
	"ThrottlingException", "Throttling", "ThrottledException", "RequestLimitExceeded", "RequestThrottled", "RequestThrottledException",
	"ProvisionedThroughputExceededException", "LimitExceededException", "SlowDown", "BandwidthLimitExceeded",
	"TransactionConflictException", "TransactionInProgressException", "ReplicatedWriteConflictException",
	"RequestTimeTooSkewed", "PriorRequestNotComplete",
}

func judge(err error) outcome {
	switch {
	case errors.Is(err, storage.ErrFenced), errors.Is(err, storage.ErrClosed), errors.Is(err, errComposed):
		return refused
	case errors.Is(err, errNotPermitted), errors.Is(err, errGateShut):
		return busy
	}
	var api smithy.APIError
	if !errors.As(err, &api) {
		if neverSent(err) {
			return refused
		}
		return unknown
	}
	if slices.Contains(busyCodes, api.ErrorCode()) {
		return busy
	}
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.HTTPStatusCode() >= http.StatusInternalServerError {
		return unknown
	}
	switch api.ErrorCode() {
	case "InternalServerError", "InternalFailure", "ServiceUnavailable", "ServiceUnavailableException", "InternalServerErrorException":
		return unknown
	}
	return refused
}

// neverSent recognises what goes wrong inside the SDK before anything is sent, and always will.
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

// inconsistent is the error of a call whose time is over.
func inconsistent(ctx context.Context, cause error) error {
	if err := ctx.Err(); err != nil {
		if cause == nil || errors.Is(cause, err) {
			return fmt.Errorf("%w: %w", storage.ErrInconsistent, err)
		}
		return fmt.Errorf("%w: %w: %w", storage.ErrInconsistent, err, plain(cause))
	}
	return fmt.Errorf("%w: %w", storage.ErrInconsistent, plain(cause))
}

// plain strips an error of the SDK to what says something: the operation and the service's own words, without request ids.
func plain(err error) error {
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

// hasCode reports whether err is an answer of the service with this code.
func hasCode(err error, codes ...string) bool {
	var api smithy.APIError
	return errors.As(err, &api) && slices.Contains(codes, api.ErrorCode())
}
