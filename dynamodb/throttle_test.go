package dynamodb_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// Throttling of some requests does not slow down other requests of the same handle.
func TestThrottledNeighbour(t *testing.T) {
	t.Parallel()
	var err error
	for range 3 { // a stall of the machine slows down one attempt
		if err = writeBesideThrottledLists(t); err == nil {
			return
		}
	}
	t.Error(err)
}

// writeBesideThrottledLists returns an error if a new handle's writes are much slower while its lists are throttled.
func writeBesideThrottledLists(t *testing.T) error {
	s := dynamofake.New(t)
	b := fixture.Open(t, s.URL())
	res := fixture.Write(t, b, box("cold", nil))
	const writes = 200
	write := func(ctx context.Context) (err error) {
		for n := range writes {
			if res, err = b.WriteCAS(ctx, res); err != nil {
				return fmt.Errorf("write %d: %w", n, err)
			}
		}
		return nil
	}
	began := time.Now()
	if err := write(t.Context()); err != nil {
		t.Fatal(err)
	}
	alone := time.Since(began)
	s.SetFaults(func(op string) dynamofake.Fault {
		if op == "Query" {
			return dynamofake.Fault{Code: "ThrottlingException"}
		}
		return dynamofake.Fault{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	lists := make(chan error, 8)
	for range cap(lists) {
		go func() {
			_, err := b.List(ctx, storage.StrongConsistency, boxType, tenancy, "")
			lists <- err
		}()
	}
	for s.Calls("Query") < 2*cap(lists) {
		<-time.After(time.Millisecond)
	}
	// The bound follows the machine's speed. A limiter shared by all requests would allow about five writes a second.
	bound, stop := context.WithTimeout(ctx, 10*alone+10*time.Second)
	defer stop()
	err := write(bound)
	cancel()
	for range cap(lists) {
		if err := <-lists; err == nil {
			t.Error("a throttled list succeeded")
		}
	}
	return err
}
