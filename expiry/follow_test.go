package expiry

import (
	"math"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage/resourcepb"
)

// A time to live that a write would refuse, from a program that does not know the field, is none: the resource stays.
func TestInvalidTTLIsNone(t *testing.T) {
	t.Parallel()
	for want, ttl := range map[time.Duration]*durationpb.Duration{
		0: nil, time.Second + 1: {Seconds: 1, Nanos: 1}, math.MaxInt64: {Seconds: 300_000_000_000},
	} {
		if got := timeToLive(&resourcepb.Resource{Ttl: ttl}); got != want {
			t.Errorf("%v: got %v, expected %v", ttl, got, want)
		}
	}
	for _, ttl := range []*durationpb.Duration{{}, {Seconds: -1}, {Seconds: 1, Nanos: -1}, {Seconds: math.MaxInt64}, {Nanos: math.MaxInt32}} {
		if got := timeToLive(&resourcepb.Resource{Ttl: ttl}); got != 0 {
			t.Errorf("%v: got %v, expected 0", ttl, got)
		}
	}
}
