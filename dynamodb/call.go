package dynamodb

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/ashlar-dev/storage"
)

// begin starts a step of what takes longer than a call, and bounds its time where the caller does not.
func (b *handle) begin(ctx context.Context) (context.Context, context.CancelFunc, error) {
	if b.closed.Load() {
		return nil, nil, storage.ErrClosed
	}
	if _, bounded := ctx.Deadline(); bounded {
		return ctx, func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.opts.Timeout)
	return ctx, cancel, nil
}

// call sends a request until there is an answer that settles it, or the time is over: then the error matches
// storage.ErrInconsistent. maybe reports whether any attempt, those inside the SDK included, may have been carried out without our
// knowing: f must be such that this does no harm.
func (b *handle) call(ctx context.Context, f func(option func(*dynamodb.Options)) error) (maybe bool, err error) {
	t := attempts{clock: &b.clock}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := f(t.option)
		if err == nil {
			return t.maybe.Load(), nil
		}
		switch judge(err) {
		case refused:
			return t.maybe.Load(), plain(err)
		case unknown:
			t.maybe.Store(true)
		case busy:
		}
		if !sleep(ctx, pause/2+rand.N(pause/2)) {
			return t.maybe.Load(), inconsistent(ctx, err)
		}
	}
}

// sleep waits, and reports whether ctx is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
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
	clock *clock
}

func (t *attempts) option(o *dynamodb.Options) {
	o.Retryer = t.wrap(o.Retryer)
	t.clock.watch(o)
}

func (t *attempts) wrap(inner aws.Retryer) aws.Retryer {
	if v2, ok := inner.(aws.RetryerV2); ok {
		return &watchedV2{RetryerV2: v2, attempts: t}
	}
	if inner == nil {
		inner = aws.NopRetryer{}
	}
	return &watched{Retryer: inner, attempts: t}
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

func (t *attempts) note(err error) {
	if judge(err) == unknown {
		t.maybe.Store(true)
	}
}
