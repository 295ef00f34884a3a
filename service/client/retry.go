package client

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// retryPolicy makes gRPC repeat reads that found no server, or one that is shutting down. A write is not repeated: it may have been applied.
const retryPolicy = `{"methodConfig": [{
	"name": [
		{"service": "ashlar.resource.v1.ResourceService", "method": "Read"},
		{"service": "ashlar.resource.v1.ResourceService", "method": "List"},
		{"service": "ashlar.resource.v1.ResourceService", "method": "ListByOwner"},
		{"service": "ashlar.resource.v1.HistoryService", "method": "Revisions"},
		{"service": "ashlar.resource.v1.HistoryService", "method": "ListAt"}
	],
	"retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2, "retryableStatusCodes": ["UNAVAILABLE"]}
}]}`

// repeat calls a method again while the server refuses it because of too many calls, each time after the time that the server names. The server
// has not begun a refused call, so a write can be repeated, too.
func repeat[Res any](ctx context.Context, method func() (Res, error)) (Res, error) {
	for {
		res, err := method()
		wait, limited := retryDelay(err)
		if !limited {
			return res, err
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return res, err
		}
	}
}

// retryDelay reports whether a call was refused because of too many calls, and after which time it can be repeated.
func retryDelay(err error) (time.Duration, bool) {
	s := status.Convert(err)
	if s.Code() != codes.ResourceExhausted {
		return 0, false
	}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return max(info.GetRetryDelay().AsDuration(), time.Millisecond), true
		}
	}
	return 0, false
}
