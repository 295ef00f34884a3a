package serve

import (
	"fmt"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// limits bounds the number of calls and requests a second, of each caller and of all. A caller can use the calls of one second at once.
type limits struct {
	each  float64
	total *rate.Limiter

	mu      sync.Mutex
	callers map[string]*rate.Limiter // by the name of the token, "" for callers without one
}

// newLimits returns limits. 0 is no limit.
func newLimits(each, total float64) *limits {
	return &limits{each: each, total: newLimiter(total), callers: map[string]*rate.Limiter{}}
}

func newLimiter(limit float64) *rate.Limiter {
	if limit == 0 {
		return rate.NewLimiter(rate.Inf, 0)
	}
	return rate.NewLimiter(rate.Limit(limit), int(math.Ceil(limit)))
}

// take counts a call. Beyond a limit it fails with ResourceExhausted and the time after which a retry may succeed. The lock joins each
// reservation with its cancellation: a limiter does not take a reservation back once a later one was made.
func (l *limits) take(caller string, now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.caller(caller).ReserveN(now, 1)
	if wait := own.DelayFrom(now); wait > 0 {
		own.CancelAt(now)
		return errTooMany("the token has", wait)
	}
	all := l.total.ReserveN(now, 1)
	if wait := all.DelayFrom(now); wait > 0 {
		all.CancelAt(now)
		own.CancelAt(now)
		return errTooMany("the server has", wait)
	}
	return nil
}

// caller returns the limiter of a caller. l.mu is held.
func (l *limits) caller(name string) *rate.Limiter {
	limiter := l.callers[name]
	if limiter == nil {
		limiter = newLimiter(l.each)
		l.callers[name] = limiter
	}
	return limiter
}

// errTooMany is the error of a call beyond a limit.
func errTooMany(subject string, wait time.Duration) error {
	s := status.New(codes.ResourceExhausted, fmt.Sprintf("%s too many calls a second: retry after %v", subject, wait.Round(time.Millisecond)))
	if with, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
		s = with
	}
	return s.Err()
}
