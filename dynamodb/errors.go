package dynamodb

import (
	"errors"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// What an error of the SDK says about the fate of a request is in package request.

// errUnprocessed is what DynamoDB means by an answer without items: it is throttling.
var errUnprocessed = request.NewError(request.Undone, "BatchGetItem: all keys were left unprocessed")

// conditionFailed reports whether a request was refused because of its condition.
func conditionFailed(err error) bool { return request.HasCode(err, "ConditionalCheckFailedException") }

// failedCondition is the code of a reason.
const failedCondition = "ConditionalCheckFailed"

// errCondition says that a condition of a commit does not hold, and that nothing was changed.
var errCondition = errors.New("the condition does not hold")

// conditionError passes through retry as a refusal, without losing the exception.
type conditionError struct{ error }

func (e *conditionError) Unwrap() error        { return e.error }
func (e *conditionError) Is(target error) bool { return target == errCondition }

// whyCancelled turns the reasons into an error that retry understands: a failed condition or worse settles it, a conflict with
// another transaction or throttling does not.
func whyCancelled(cancelled *types.TransactionCanceledException, err error) ([]types.CancellationReason, error) {
	condition := false
	for _, r := range cancelled.CancellationReasons {
		switch aws.ToString(r.Code) {
		case "", "None":
		case failedCondition:
			condition = true
		case "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded":
			return nil, &types.TransactionInProgressException{Message: aws.String(aws.ToString(r.Code) + ": " + aws.ToString(r.Message))}
		default:
			return nil, err
		}
	}
	if !condition {
		return nil, err
	}
	return cancelled.CancellationReasons, &conditionError{err}
}
