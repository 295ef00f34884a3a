package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
)

// assertions are checks that end the case if they fail.
type assertions struct {
	testing.TB
	ctx     context.Context // ends some time after the case should have
	timeout time.Duration
}

// timeoutContext returns a context that ends after the timeout of the harness.
func (s *assertions) timeoutContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, s.timeout)
}

// within fails the case if f does not return before the timeout.
func (s *assertions) within(what string, f func()) {
	s.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	s.await(what, done)
}

func (s *assertions) await(what string, done <-chan struct{}) {
	s.Helper()
	timer := time.NewTimer(s.timeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		s.Fatalf("%s: still waiting after %v", what, s.timeout)
	}
}

// eventually polls until check returns no error. It is for promises without a deadline.
func (s *assertions) eventually(what string, check func() error) {
	s.Helper()
	if err := s.poll(check); err != nil {
		s.Fatalf("%s: not so after %v: %v", what, s.timeout, err)
	}
}

// poll is eventually for goroutines, which may not end the case. It returns the last error of check.
func (s *assertions) poll(check func() error) error {
	ctx, cancel := s.timeoutContext()
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// parallel runs f n times at once and ends the case with the first error.
func (s *assertions) parallel(n int, f func(i int) error) {
	s.Helper()
	errs := make([]error, n)
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { errs[i] = f(i) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		s.Fatal(err)
	}
}

// wantError demands an error that matches want.
func (s *assertions) wantError(what string, err, want error) {
	s.Helper()
	if !errors.Is(err, want) {
		s.Fatalf("%s: got error %v, want %q", what, quoteError(err), want)
	}
}

// noError demands a nil error.
func (s *assertions) noError(what string, err error) {
	s.Helper()
	if err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

// equal demands two equal messages.
func (s *assertions) equal(what string, got, want proto.Message) {
	s.Helper()
	if !proto.Equal(got, want) {
		s.Fatalf("%s:\n got %s\nwant %s", what, shortText(got), shortText(want))
	}
}

// equalLists demands equal resources in the same order.
func (s *assertions) equalLists(what string, got, want []*resourcepb.Resource) {
	s.Helper()
	if err := compareLists(got, want); err != nil {
		s.Fatalf("%s: %v", what, err)
	}
}

// result waits for the outcome of a goroutine.
func (s *assertions) result(what string, outcome <-chan error) error {
	s.Helper()
	var err error
	s.within(what, func() { err = <-outcome })
	return err
}

func quoteError(err error) string {
	if err == nil {
		return "none"
	}
	return fmt.Sprintf("%q", err)
}

func compareLists(got, want []*resourcepb.Resource) error {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("%d resources instead of %d: missing %s", len(got), len(want), shortText(want[i]))
		case i >= len(want):
			return fmt.Errorf("%d resources instead of %d: too many is %s", len(got), len(want), shortText(got[i]))
		case !proto.Equal(got[i], want[i]):
			return fmt.Errorf("resource %d of %d:\n got %s\nwant %s", i, len(want), shortText(got[i]), shortText(want[i]))
		}
	}
	return nil
}

func compareIDs(got, want []*resourcepb.ID) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d references instead of %d:\n got %v\nwant %v", len(got), len(want), got, want)
	}
	for i := range got {
		if !proto.Equal(got[i], want[i]) {
			return fmt.Errorf("reference %d:\n got %v\nwant %v", i, got[i], want[i])
		}
	}
	return nil
}

// shortText formats a message and shortens it.
func shortText(m proto.Message) string {
	line := prototext.MarshalOptions{}.Format(m)
	if len(line) > 600 {
		line = line[:600] + "…"
	}
	return line
}

// cancelledContext returns a context that has ended.
func cancelledContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func must[T any](t testing.TB) func(v T, err error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
