package request

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Retry sends a request until there is an answer that settles it, or the time is over: then the error matches
// storage.ErrInconsistent. maybe reports whether any attempt, those inside the SDK included, may have been carried out without our
// knowing: sending the request again must do no harm then. send passes option on to the SDK.
func Retry(ctx context.Context, clock *Clock, send func(option func(*dynamodb.Options)) error) (maybe bool, err error) {
	a := attempts{clock: clock}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := send(a.option)
		if err == nil {
			return a.maybe.Load(), nil
		}
		if a.note(err) == Refused {
			return a.maybe.Load(), Plain(err)
		}
		if !Sleep(ctx, pause/2+rand.N(pause/2)) {
			return a.maybe.Load(), Inconsistent(ctx, err)
		}
	}
}

// Sleep waits, and reports whether ctx is still alive.
func Sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// attempts notes what the SDK's own retries hide: whether one of the attempts may have been carried out.
type attempts struct {
	maybe atomic.Bool
	clock *Clock
}

// note takes in the error of an attempt.
func (a *attempts) note(err error) Fate {
	fate := FateOf(err)
	if fate == Unknown {
		a.maybe.Store(true)
	}
	return fate
}

func (a *attempts) option(o *dynamodb.Options) {
	o.Retryer = a.wrap(o.Retryer)
	a.clock.watch(o)
}

func (a *attempts) wrap(inner aws.Retryer) aws.Retryer {
	if v2, ok := inner.(aws.RetryerV2); ok {
		return &watchedV2{RetryerV2: v2, attempts: a}
	}
	if inner == nil {
		inner = aws.NopRetryer{}
	}
	return &watched{Retryer: inner, attempts: a}
}

type watched struct {
	aws.Retryer
	attempts *attempts
}

// IsErrorRetryable is asked after every attempt that failed.
func (w *watched) IsErrorRetryable(err error) bool {
	w.attempts.note(err)
	return w.Retryer.IsErrorRetryable(err)
}

type watchedV2 struct {
	aws.RetryerV2
	attempts *attempts
}

// IsErrorRetryable is asked after every attempt that failed.
func (w *watchedV2) IsErrorRetryable(err error) bool {
	w.attempts.note(err)
	return w.RetryerV2.IsErrorRetryable(err)
}
