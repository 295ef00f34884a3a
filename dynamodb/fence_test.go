package dynamodb_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// startFence closes a store in the background.
func startFence(t *testing.T, b *dynamodb.Backend, target string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- gateOf(b).SetFence(t.Context(), &target) }()
	return done
}

// advanceUntil advances AWS's time until happened receives a value.
func advanceUntil[T any](t *testing.T, s *dynamofake.Server, happened <-chan T) T {
	t.Helper()
	for range 10_000 {
		select {
		case v := <-happened:
			return v
		case <-time.After(5 * time.Millisecond):
			s.Advance(10 * time.Second)
		}
	}
	t.Fatal("no result within a day of AWS's time")
	panic("unreachable")
}

// awaitAnnouncement waits until a fence is announced.
func awaitAnnouncement(s *dynamofake.Server) {
	for s.Items('f') == 0 {
		<-time.After(time.Millisecond)
	}
}

// A store stays open while it is being closed. Afterwards it refuses every writer.
func TestFence(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b, other := handle(t, s), handle(t, s)
	res := fixture.Write(t, other, box("a", nil))
	done := startFence(t, b, "mem://there")
	awaitAnnouncement(s)
	var err error
	writes := 0
	open, writerDone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(writerDone)
		for err == nil {
			stored, refused := other.WriteCAS(t.Context(), res)
			if err = refused; err == nil {
				res = stored
				if writes++; writes == 2 {
					close(open)
				}
			}
		}
	}()
	select {
	case <-open: // AWS's time does not advance until then
	case <-writerDone:
	}
	if err := advanceUntil(t, s, done); err != nil {
		t.Fatal(err)
	}
	<-writerDone
	if !errors.Is(err, storage.ErrFenced) || !strings.Contains(err.Error(), "mem://there") {
		t.Errorf("a write to the closed store: %v, expected ErrFenced", err)
	}
	if writes < 2 {
		t.Errorf("%d writes succeeded while the store was being closed, expected at least 2", writes)
	}
	if now, err := b.Read(t.Context(), storage.StrongConsistency, res.GetId()); err != nil || now.GetVersion() != res.GetVersion() {
		t.Errorf("the stored version is not the last acknowledged one: %v", err)
	}
	if err := gateOf(b).SetFence(t.Context(), new("mem://elsewhere")); err != nil {
		t.Fatal(err)
	}
	if fence, err := gateOf(other).Fence(t.Context()); fence.Target != "mem://elsewhere" || !fence.Closed || err != nil {
		t.Errorf("the fence is %+v, %v", fence, err)
	}
	if err := gateOf(other).SetFence(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	fixture.Write(t, other, res)
	fixture.Write(t, b, box("b", nil))
}

// A delayed request, whose client has cancelled it, arrives after the store was closed. It is not applied.
func TestLateRequest(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		held   string
		before bool // it was sent before the fence was announced
	}{
		"SentBefore": {"PutItem", true}, "SentMeanwhile": {"TransactWriteItems", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			b, writer := handle(t, s), handle(t, s)
			res := fixture.Write(t, writer, box("a", nil))
			arrived, late, applied := make(chan struct{}), make(chan struct{}), make(chan struct{})
			var first atomic.Bool
			hold := func() {
				s.SetGate(func(op string) {
					if op == c.held && first.CompareAndSwap(false, true) {
						close(arrived)
						<-late
						close(applied)
					}
				})
			}
			ctx, cancel := context.WithCancel(t.Context())
			written := make(chan error, 1)
			send := func() {
				hold()
				go func() { _, err := writer.WriteCAS(ctx, res); written <- err }()
				<-arrived
				cancel()
				if err := <-written; !errors.Is(err, storage.ErrInconsistent) {
					t.Errorf("a cancelled write: %v, expected ErrInconsistent", err)
				}
			}
			if c.before {
				send()
			}
			done := startFence(t, b, "mem://there")
			awaitAnnouncement(s)
			if !c.before {
				s.Advance(10 * time.Minute) // the old permission has expired, and the signature is still valid when the gates are closed
				if _, err := writer.Read(t.Context(), storage.StrongConsistency, res.GetId()); err != nil {
					t.Fatal(err)
				}
				send()
			}
			if err := advanceUntil(t, s, done); err != nil {
				t.Fatal(err)
			}
			close(late)
			<-applied
			fixture.Write(t, handle(t, s, func(o *dynamodb.Options) { o.Prefix = "another" }), box("a", nil)) // arrives after it
			if now, err := b.Read(t.Context(), storage.StrongConsistency, res.GetId()); err != nil || now.GetVersion() != res.GetVersion() {
				t.Errorf("a write was applied after the store was closed: %v", err)
			}
		})
	}
}

// A writer is suspended between its read of the fence and the signature of its request, and resumes after the store was closed.
func TestStoppedBeforeTheFence(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	freezer := dynamofake.NewFreezer("PutItem")
	writer := handleThrough(t, s, freezer.Option)
	res := fixture.Write(t, writer, box("a", nil))
	freezer.Freeze()
	written := make(chan error, 1)
	go func() { _, err := writer.WriteCAS(t.Context(), res); written <- err }()
	freezer.Wait()
	b := handle(t, s)
	if err := advanceUntil(t, s, startFence(t, b, "mem://there")); err != nil {
		t.Fatal(err)
	}
	freezer.Thaw()
	if err := <-written; !errors.Is(err, storage.ErrFenced) {
		t.Errorf("got %v, expected ErrFenced", err)
	}
	if now, err := b.Read(t.Context(), storage.StrongConsistency, res.GetId()); err != nil || now.GetVersion() != res.GetVersion() {
		t.Errorf("a write was applied after the store was closed: %v", err)
	}
}

// The duration of closing a store is independent of the URL's timeout. A deadline that is too early fails at once.
func TestFenceWithAShortTimeout(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s) // fixture.Timeout is shorter than the closing, by AWS's time, and long enough for its steps on a busy machine
	res := fixture.Write(t, b, box("a", nil))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	if err := gateOf(b).SetFence(ctx, new("mem://there")); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("with a deadline that is too early: %v", err)
	}
	res = fixture.Write(t, b, res)
	if err := advanceUntil(t, s, startFence(t, b, "mem://there")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteCAS(t.Context(), res); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("a write to the closed store: %v, expected ErrFenced", err)
	}
}

// A closing that is cancelled, at any point, leaves the store open.
func TestCancelledFence(t *testing.T) {
	t.Parallel()
	for name, fails := range map[string]func(s *dynamofake.Server, cancel func()){
		"WhileWaiting": func(_ *dynamofake.Server, cancel func()) { cancel() },
		"WhileShuttingTheGates": func(s *dynamofake.Server, cancel func()) {
			puts := 0
			s.SetFaults(func(op string) dynamofake.Fault {
				if op != "TransactWriteItems" {
					return dynamofake.Fault{}
				}
				if puts++; puts < 20 {
					return dynamofake.Fault{}
				}
				cancel()
				return dynamofake.Fault{Code: "InternalServerError", Status: 500}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			b, other := handle(t, s), handle(t, s)
			res := fixture.Write(t, other, box("a", nil))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- gateOf(b).SetFence(ctx, new("mem://there")) }()
			awaitAnnouncement(s)
			s.Advance(time.Minute)
			if _, err := other.Read(t.Context(), storage.StrongConsistency, res.GetId()); err != nil {
				t.Fatal(err)
			}
			before := s.Calls("TransactWriteItems")
			res = fixture.Write(t, other, res)
			if s.Calls("TransactWriteItems") == before {
				t.Error("a write after the announcement was sent without the fence's condition")
			}
			fails(s, cancel)
			if err := advanceUntil(t, s, done); err == nil {
				t.Fatal("closing succeeded")
			}
			s.SetFaults(nil)
			puts := s.Calls("PutItem") // the server may still receive cancelled transactions
			res = fixture.Write(t, b, res)
			if s.Calls("PutItem") == puts {
				t.Error("the announcement was not withdrawn")
			}
			for _, b := range []*dynamodb.Backend{b, other} {
				if fence, err := gateOf(b).Fence(t.Context()); fence.Closed || err != nil {
					t.Errorf("the fence is %+v, %v", fence, err)
				}
				res = fixture.Write(t, b, res)
			}
			// The store can still be closed.
			if err := advanceUntil(t, s, startFence(t, other, "mem://there")); err != nil {
				t.Fatal(err)
			}
			if _, err := b.WriteCAS(t.Context(), res); !errors.Is(err, storage.ErrFenced) {
				t.Errorf("a write to the closed store: %v, expected ErrFenced", err)
			}
		})
	}
}

// The answer to the removal of a fence is lost, and before the removal is repeated there is a new fence. The new fence stays.
func TestUnfenceRepeated(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b, other := handle(t, s), handle(t, s)
	if err := advanceUntil(t, s, startFence(t, b, "mem://first")); err != nil {
		t.Fatal(err)
	}
	again, closed := make(chan struct{}), make(chan struct{})
	removals := 0
	s.SetFaults(func(op string) dynamofake.Fault {
		if op != "TransactWriteItems" {
			return dynamofake.Fault{}
		}
		removals++
		return dynamofake.Fault{DropAnswer: removals == 1}
	})
	var mu sync.Mutex
	arrivals := 0
	s.SetGate(func(op string) {
		if op != "TransactWriteItems" {
			return
		}
		mu.Lock()
		arrivals++
		n := arrivals
		mu.Unlock()
		if n == 2 {
			close(again)
			<-closed
		}
	})
	opened := make(chan error, 1)
	go func() { opened <- gateOf(b).SetFence(t.Context(), nil) }()
	<-again
	if err := advanceUntil(t, s, startFence(t, other, "mem://second")); err != nil {
		t.Fatal(err)
	}
	close(closed)
	if err := <-opened; err != nil {
		t.Errorf("opening: %v", err)
	}
	if fence, err := gateOf(b).Fence(t.Context()); !fence.Closed || fence.Target != "mem://second" || err != nil {
		t.Errorf("the second fence is %+v, %v", fence, err)
	}
}

// A read of the fence that is not answered does not delay callers beyond their deadlines.
func TestDeadlineDuringFenceRead(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	res := fixture.Write(t, b, box("a", nil))
	s.Advance(time.Hour) // the permission expires
	if _, err := b.Read(t.Context(), storage.EventualConsistency, res.GetId()); err != nil {
		t.Fatal(err)
	}
	reading, answered := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.SetGate(func(op string) {
		if op == "GetItem" {
			once.Do(func() { close(reading) })
			<-answered
		}
	})
	patient := make(chan error, 1)
	go func() { _, err := b.WriteCAS(t.Context(), box("b", nil)); patient <- err }()
	<-reading
	hasty := make(chan error, 1)
	go func() { _, err := b.WriteCAS(fixture.CallTimeout(t.Context(), t, time.Second), res); hasty <- err }()
	select {
	case err := <-hasty:
		if !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, expected ErrInconsistent and the deadline's", err)
		}
	case <-time.After(fixture.Timeout):
		t.Error("the call did not end with its deadline")
	}
	close(answered)
	if err := <-patient; err != nil {
		t.Error(err)
	}
}

// A write takes longer to send than a permission lasts, like a megabyte on a slow connection. It succeeds.
func TestSlowConnection(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s, func(o *dynamodb.Options) { o.FenceWait = 400 * time.Millisecond })
	res := fixture.Write(t, b, box("a", nil)) // the type is known
	var once sync.Once
	s.SetGate(func(op string) {
		if op == "TransactWriteItems" {
			once.Do(func() { <-time.After(time.Second) })
		}
	})
	before := s.Calls("TransactWriteItems")
	res.Data.Value = content(1, 900<<10, false)
	fixture.Write(t, b, res)
	if n := s.Calls("TransactWriteItems") - before; n != 1 {
		t.Errorf("the write made %d requests, expected one", n)
	}
}

// Two programs close a store. One succeeds, and then the other one is cancelled. The store stays closed.
func TestCancelledFenceBesideAnother(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	slow := handle(t, s, func(o *dynamodb.Options) { o.IdlePoll = time.Hour })
	res := fixture.Write(t, b, box("a", nil))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- gateOf(slow).SetFence(ctx, new("mem://there")) }()
	awaitAnnouncement(s)
	if err := advanceUntil(t, s, startFence(t, b, "mem://there")); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-result; err == nil {
		t.Fatal("the cancelled closing succeeded")
	}
	if fence, err := gateOf(b).Fence(t.Context()); !fence.Closed || err != nil {
		t.Errorf("the store is open again: %+v, %v", fence, err)
	}
	if _, err := b.WriteCAS(t.Context(), res); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("a write to the closed store: %v, expected ErrFenced", err)
	}
}

// Two programs close a store for different targets concurrently. One of them succeeds, and the store stays closed for its target,
// because programs may already have moved there.
func TestTwoTargets(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	freezer := dynamofake.NewFreezer("GetItem")
	first := handleThrough(t, s, freezer.Option)
	second := handle(t, s)
	res := fixture.Write(t, second, box("a", nil))
	closings := map[string]<-chan error{"mem://here": startFence(t, first, "mem://here")}
	awaitAnnouncement(s)
	freezer.Freeze()
	freezer.Wait()
	reads := s.Calls("GetItem")
	closings["mem://there"] = startFence(t, second, "mem://there")
	for s.Calls("GetItem") < reads+2 { // it has read the announcement, and waits
		<-time.After(time.Millisecond)
	}
	freezer.Thaw()
	var winner string
	for target, done := range closings {
		switch err := advanceUntil(t, s, done); {
		case err == nil && winner == "":
			winner = target
		case err == nil:
			t.Errorf("the store was closed both for %s and for %s", winner, target)
		case !errors.Is(err, storage.ErrCASFailure):
			t.Errorf("closing for %s: %v", target, err)
		}
	}
	if state, err := gateOf(first).Fence(t.Context()); state.Target != winner || !state.Closed || err != nil {
		t.Errorf("the fence is %+v, %v; expected to be closed for %q", state, err, winner)
	}
	if _, err := second.WriteCAS(t.Context(), res); !errors.Is(err, storage.ErrFenced) {
		t.Errorf("a write to the closed store: %v, expected ErrFenced", err)
	}
}

// A closing for one target was announced, and its process is suspended. This does not delay a closing for another target.
func TestAnnouncementOfAnotherTarget(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	freezer := dynamofake.NewFreezer("GetItem")
	suspended := handleThrough(t, s, freezer.Option)
	stopped := startFence(t, suspended, "mem://here")
	awaitAnnouncement(s)
	freezer.Freeze()
	freezer.Wait()
	b := handle(t, s)
	if err := advanceUntil(t, s, startFence(t, b, "mem://there")); err != nil {
		t.Fatal(err)
	}
	freezer.Thaw()
	if err := advanceUntil(t, s, stopped); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("the closing by the suspended process: %v, expected ErrCASFailure", err)
	}
	if state, err := gateOf(b).Fence(t.Context()); state.Target != "mem://there" || !state.Closed || err != nil {
		t.Errorf("the fence is %+v, %v", state, err)
	}
}

// A process withdraws its announcement between the steps of an Unfence. The Unfence gives the fence a new epoch nevertheless, so that
// a process that knows the old one cannot close the store any more.
func TestUnfenceBesideWithdrawal(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]bool{"SetFence": false, "SetFenceAt": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			freezer := dynamofake.NewFreezer("TransactWriteItems")
			b, closing := handleThrough(t, s, freezer.Option), handle(t, s)
			ctx, withdraw := context.WithCancel(t.Context())
			defer withdraw()
			closed := make(chan error, 1)
			go func() { closed <- gateOf(closing).SetFence(ctx, new("mem://there")) }()
			awaitAnnouncement(s)
			m, _ := storage.As[driver.GuardedMover](b)
			before, err := m.Fence(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			freezer.Freeze()
			opened := make(chan error, 1)
			go func() {
				if at {
					_, err := m.SetFenceAt(t.Context(), nil, before.Epoch)
					opened <- err
					return
				}
				opened <- m.SetFence(t.Context(), nil)
			}()
			freezer.Wait() // it has read the announced fence
			withdraw()
			if err := <-closed; !errors.Is(err, context.Canceled) {
				t.Fatalf("the withdrawn closing: %v", err)
			}
			freezer.Thaw()
			if err := <-opened; err != nil {
				t.Errorf("opening the store beside the withdrawal: %v", err)
			}
			if now, err := m.Fence(t.Context()); err != nil || now.Closed || now.Epoch == before.Epoch {
				t.Fatalf("the fence is %+v, %v; expected an open store with another epoch than %q", now, err, before.Epoch)
			}
			if _, err := m.SetFenceAt(t.Context(), &driver.Fence{Target: "mem://there"}, before.Epoch); !errors.Is(err, storage.ErrCASFailure) {
				t.Errorf("closing at the epoch before: got %v, expected a conflict", err)
			}
		})
	}
}

// The answer to a new closing of a closed store is lost, and DynamoDB has forgotten the transaction when it is repeated. It succeeds.
func TestClosedAgainWithLostAnswer(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	if err := advanceUntil(t, s, startFence(t, b, "mem://there")); err != nil {
		t.Fatal(err)
	}
	m, _ := storage.As[driver.GuardedMover](b)
	before, err := m.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	transactions := 0
	s.SetFaults(func(op string) dynamofake.Fault {
		if op != "TransactWriteItems" {
			return dynamofake.Fault{}
		}
		transactions++
		return dynamofake.Fault{DropAnswer: transactions == 1}
	})
	s.ForgetTokens()
	epoch, err := m.SetFenceAt(t.Context(), &driver.Fence{Target: "mem://elsewhere"}, before.Epoch)
	if err != nil {
		t.Fatalf("%v after %d transactions", err, transactions)
	}
	if now, err := m.Fence(t.Context()); err != nil || !now.Closed || now.Target != "mem://elsewhere" || now.Epoch != epoch {
		t.Errorf("the fence is %+v, %v; expected the epoch %s", now, err, epoch)
	}
}

// The answer to a write is lost while the store is being closed, and the next attempt finds it closed. The result is the true outcome.
func TestClosedBeforeRepetition(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault dynamofake.Fault
		later time.Duration
		want  error
	}{
		"Applied":    {fault: dynamofake.Fault{DropAnswer: true}},
		"NotApplied": {fault: dynamofake.Fault{Code: "InternalServerError", Status: 500}, want: storage.ErrFenced},
		// If it had been a deletion, its tombstone could have expired.
		"NotAppliedLongAgo": {fault: dynamofake.Fault{Code: "InternalServerError", Status: 500}, later: 3 * time.Hour, want: storage.ErrInconsistent},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			freezer := dynamofake.NewFreezer("TransactWriteItems")
			b, writer := handleThrough(t, s, freezer.Option), handle(t, s)
			res := fixture.Write(t, writer, box("a", nil))
			freezer.Freeze()
			closing, shutting := startFence(t, b, "mem://there"), make(chan struct{})
			go func() { freezer.Wait(); close(shutting) }()
			advanceUntil(t, s, shutting)
			repeated, closed := make(chan struct{}), make(chan struct{})
			reading, late := make(chan struct{}), make(chan struct{}) // the fence
			var lost, held, isClosed, isRead atomic.Bool
			s.SetFaults(func(op string) dynamofake.Fault {
				if op == "TransactWriteItems" && lost.CompareAndSwap(false, true) {
					return c.fault
				}
				return dynamofake.Fault{}
			})
			s.SetGate(func(op string) {
				if op == "TransactWriteItems" && lost.Load() && held.CompareAndSwap(false, true) {
					close(repeated)
					<-closed
				}
				if op == "GetItem" && isClosed.Load() && isRead.CompareAndSwap(false, true) {
					close(reading)
					<-late
				}
			})
			s.ForgetTokens()
			version, written := "", make(chan error, 1)
			go func() {
				stored, err := writer.WriteCAS(t.Context(), res)
				version = stored.GetVersion()
				written <- err
			}()
			await := func(step <-chan struct{}) {
				select {
				case <-step:
				case err := <-written:
					t.Fatalf("the write has ended too early: %v", err)
				}
			}
			await(repeated)
			freezer.Thaw()
			if err := <-closing; err != nil {
				t.Fatal(err)
			}
			isClosed.Store(true)
			close(closed)
			await(reading)
			s.Advance(c.later)
			close(late)
			err := <-written
			if !errors.Is(err, c.want) || errors.Is(err, storage.ErrFenced) && errors.Is(err, storage.ErrInconsistent) {
				t.Fatalf("got %v, expected only %v", err, c.want)
			}
			if c.want != nil {
				version = res.Version
			}
			if now, err := b.Read(t.Context(), storage.StrongConsistency, res.Id); err != nil || now.Version != version {
				t.Errorf("the stored version is %q, expected %q: %v", now.GetVersion(), version, err)
			}
		})
	}
}
