package dynamodb_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// The listing of the stream is throttled for a while. A page waits for it until its deadline, and no longer.
func TestPageWhileTheStreamIsThrottled(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	fixture.Write(t, b, box("a", nil))
	var left atomic.Int64
	left.Store(10)
	s.SetFaults(func(op string) dynamofake.Fault {
		if op == "DescribeStream" && left.Add(-1) >= 0 {
			return dynamofake.Fault{Code: "LimitExceededException"}
		}
		return dynamofake.Fault{}
	})
	if _, err := b.ListPage(t.Context(), boxType, tenancy, "", storage.ListOptions{}); err != nil {
		t.Errorf("after the throttling: %v", err)
	}
	left.Store(1 << 40)
	other := handle(t, s) // opening may take longer than the call's deadline
	_, err := other.ListPage(fixture.CallTimeout(t.Context(), t, 200*time.Millisecond), boxType, tenancy, "", storage.ListOptions{})
	if !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("during the throttling: %v", err)
	}
}

// A snapshot that waits for the stream fails with ErrClosed when the backend is closed.
func TestCloseWhileAWatchWaitsForTheStream(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	watch(t, b)
	ticked := make(chan struct{}, 1)
	s.SetFaults(func(op string) dynamofake.Fault {
		if op == "PutItem" { // the ticks
			select {
			case ticked <- struct{}{}:
			default:
			}
			return dynamofake.Fault{Code: "ThrottlingException"}
		}
		return dynamofake.Fault{}
	})
	opened := make(chan error, 1)
	go func() { _, err := b.WatchList(t.Context(), boxType, tenancy, ""); opened <- err }()
	<-ticked
	<-ticked
	_ = b.Close()
	if err := <-opened; !errors.Is(err, storage.ErrClosed) {
		t.Errorf("WatchList: %v, expected ErrClosed", err)
	}
}

// brief bounds calls and outages in tests that wait for their end.
const brief = 3 * time.Second

// briefWatch opens a watch of a new handle whose calls and outages are brief, and reads the snapshot. It repeats this after an error, because
// a busy machine may need longer.
func briefWatch(t *testing.T, s *dynamofake.Server) (w storage.Watch) {
	t.Helper()
	fixture.Eventually(t, "a watch is open", func() bool {
		b, err := newHandle(t, s, func(o *dynamodb.Options) { o.Outage, o.Timeout = brief, brief })
		if err == nil {
			w, err = b.WatchList(fixture.Context(t), boxType, tenancy, "")
		}
		if err != nil {
			return false
		}
		t.Cleanup(w.Close)
		ev, err := w.Next(fixture.Context(t))
		return err == nil && ev.GetEndOfSnapshot() != nil
	})
	return w
}

// The parts of a large resource cannot be read. The watch ends after the outage instead of staying silent for ever.
func TestWatchWithoutParts(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	w := briefWatch(t, s)
	s.SetFaults(func(op string) dynamofake.Fault {
		if op == "BatchGetItem" {
			return dynamofake.Fault{Code: "InternalServerError", Status: 500}
		}
		return dynamofake.Fault{}
	})
	fixture.Write(t, handle(t, s), box("a", content(1, 1000<<10, false)))
	if _, err := w.Next(fixture.Context(t)); !errors.Is(err, storage.ErrWatchClosed) {
		t.Errorf("the watch: %v, expected ErrWatchClosed", err)
	}
}

// A stream accepts requests but does not answer. The watch ends after the outage.
func TestStreamThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	w := briefWatch(t, s)
	testEnd := make(chan struct{})
	t.Cleanup(func() { close(testEnd) })
	s.SetGate(func(op string) {
		if op == "GetRecords" {
			<-testEnd
		}
	})
	if _, err := w.Next(fixture.Context(t)); !errors.Is(err, storage.ErrWatchClosed) {
		t.Errorf("the watch: %v, expected ErrWatchClosed", err)
	}
}
