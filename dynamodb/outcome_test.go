package dynamodb_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	awsdynamodb "github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// every returns a fault for every nth write request.
func every(n int, fault dynamofake.Fault) func(string) dynamofake.Fault {
	count := 0
	return func(op string) dynamofake.Fault {
		if op != "PutItem" && op != "TransactWriteItems" {
			return dynamofake.Fault{}
		}
		if count++; count%n == 0 {
			return fault
		}
		return dynamofake.Fault{}
	}
}

// Answers of applied requests are lost in several ways. Success is reported as success, and each write is applied once.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]dynamofake.Fault{
		"ConnectionClosed": {DropAnswer: true},
		"AnswerCut":        {Cut: true},
		"InternalError":    {InternalError: true},
	} {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprintf("%sEvery%d", name, n), func(t *testing.T) {
				t.Parallel()
				s := dynamofake.New(t)
				b := handle(t, s)
				w := watch(t, b)
				afterSnapshot(t, w)
				s.SetFaults(every(n, fault))
				owner := box("owner", nil).GetId()
				var want []string
				res := box("a", nil)
				for i := range 14 {
					switch i {
					case 3, 10: // the owner's edge changes: a transaction
						res.Owner = owner
					case 5, 12:
						res.Owner = nil
					case 7:
						fixture.Remove(t, b, res)
						want = append(want, "deleted "+res.GetVersion())
						res.Version = ""
						continue
					}
					res = fixture.Write(t, b, res)
					want = append(want, res.GetVersion())
				}
				res = fixture.Write(t, b, res)
				results, err := b.Commit(t.Context(), []storage.Op{{Write: box("b", nil)}, {Write: res}})
				if err != nil {
					t.Fatal(err)
				}
				last := fixture.Write(t, b, results[1])
				s.SetFaults(nil)
				want = append(want, res.GetVersion(), results[1].GetVersion(), last.GetVersion())
				var got []string
				for len(got) == 0 || got[len(got)-1] != last.GetVersion() {
					if name, version, _ := seen(fixture.Next(t, w)); name == "a" {
						got = append(got, version)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("the watch returned %d changes for %d writes, or wrong ones", len(got), len(want))
				}
			})
		}
	}
}

// The answers of a write that retires parts are lost, and the repetition comes later. It must be the identical request, because
// DynamoDB knows its token and would refuse a different one.
func TestLostAnswerOfARetirement(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	large := fixture.Write(t, b, box("large", content(1, 900<<10, false)))
	left := 5 // more attempts than the SDK makes
	s.SetFaults(func(op string) dynamofake.Fault {
		if op != "TransactWriteItems" || left == 0 {
			return dynamofake.Fault{}
		}
		left--
		return dynamofake.Fault{InternalError: true}
	})
	s.SetGate(func(op string) {
		if op == "TransactWriteItems" {
			s.Advance(2 * time.Second)
		}
	})
	large.Data.Value = nil
	stored := fixture.Write(t, b, large)
	if now, err := b.Read(t.Context(), storage.StrongConsistency, large.GetId()); err != nil || now.GetVersion() != stored.GetVersion() {
		t.Errorf("the stored version is not the one that the write returned: %v", err)
	}
	if left > 0 {
		t.Errorf("%d lost answers were not requested again", left)
	}
}

// The answer of a transaction is lost, its repetition is refused by its own changes, and the read that would prove this fails.
func TestLostAnswerWithoutProof(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	first, second := fixture.Write(t, b, box("a", nil)), fixture.Write(t, b, box("b", nil))
	s.ForgetTokens()
	var lost, unreadable bool
	s.SetFaults(func(op string) dynamofake.Fault {
		switch {
		case op == "TransactWriteItems" && !lost:
			lost = true
			return dynamofake.Fault{DropAnswer: true}
		case (op == "GetItem" || op == "BatchGetItem") && lost:
			unreadable = true
			return dynamofake.Fault{Code: "AccessDeniedException"}
		}
		return dynamofake.Fault{}
	})
	_, err := b.Commit(t.Context(), []storage.Op{{Write: first}, {Write: second}})
	if !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("got %v, expected ErrInconsistent", err)
	}
	if !unreadable {
		t.Error("no read was refused")
	}
}

// The answer of a transaction is lost, and the process is suspended before it reads why the repetition was refused. The tombstone of its own deletion
// has expired by then, so the refusal of the other operation is not the outcome.
func TestLostAnswerAfterItsTombstone(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b, other := handle(t, s), handle(t, s)
	res := fixture.Write(t, b, box("a", nil))
	s.ForgetTokens()
	reading, late := make(chan struct{}), make(chan struct{})
	var lost, repeated, isRefused, isRead atomic.Bool
	s.SetFaults(func(op string) dynamofake.Fault {
		return dynamofake.Fault{DropAnswer: op == "TransactWriteItems" && lost.CompareAndSwap(false, true)}
	})
	s.SetGate(func(op string) {
		switch {
		case op == "TransactWriteItems" && lost.Load() && repeated.CompareAndSwap(false, true):
			fixture.Write(t, other, box("b", nil))
			isRefused.Store(true)
		case (op == "GetItem" || op == "BatchGetItem") && isRefused.Load() && isRead.CompareAndSwap(false, true):
			close(reading)
			<-late
		}
	})
	done := make(chan error, 1)
	go func() {
		_, err := b.Commit(t.Context(), []storage.Op{{Delete: res.Id, Version: res.Version}, {Check: box("b", nil).Id}})
		done <- err
	}()
	select {
	case <-reading:
	case err := <-done:
		t.Fatalf("the transaction has ended too early: %v", err)
	}
	s.Advance(3 * time.Hour)
	s.Expire('r')
	close(late)
	if err := <-done; !errors.Is(err, storage.ErrInconsistent) || errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("got %v, expected only ErrInconsistent", err)
	}
}

// The answer of a write is lost, and another writer continues before the SDK repeats it. The result is the true outcome.
func TestLostAnswerOvertaken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare  func(t *testing.T, b *dynamodb.Backend) *resourcepb.Resource
		overtake func(t *testing.T, b *dynamodb.Backend, stored *resourcepb.Resource)
		loses    int // number of the PutItem
		exists   bool
		unknown  bool // the outcome cannot be determined
	}{
		"CreatedThenDeleted": {
			prepare:  func(*testing.T, *dynamodb.Backend) *resourcepb.Resource { return box("a", nil) },
			overtake: func(t *testing.T, b *dynamodb.Backend, stored *resourcepb.Resource) { fixture.Remove(t, b, stored) },
			loses:    1,
		},
		"CreatedThenDeletedThenCreated": {
			prepare: func(*testing.T, *dynamodb.Backend) *resourcepb.Resource { return box("a", nil) },
			overtake: func(t *testing.T, b *dynamodb.Backend, stored *resourcepb.Resource) {
				fixture.Remove(t, b, stored)
				fixture.Write(t, b, box("a", nil))
			},
			loses:  1,
			exists: true,
		},
		"CreatedOverATombstoneThenDeleted": {
			prepare: func(t *testing.T, b *dynamodb.Backend) *resourcepb.Resource {
				fixture.Remove(t, b, fixture.Write(t, b, box("a", nil)))
				return box("a", nil)
			},
			overtake: func(t *testing.T, b *dynamodb.Backend, stored *resourcepb.Resource) { fixture.Remove(t, b, stored) },
			loses:    2, // the first finds the tombstone
		},
		"WrittenThenWritten": {
			prepare: func(t *testing.T, b *dynamodb.Backend) *resourcepb.Resource {
				return fixture.Write(t, b, box("a", nil))
			},
			overtake: func(t *testing.T, b *dynamodb.Backend, stored *resourcepb.Resource) {
				for range 5 {
					stored = fixture.Write(t, b, stored)
				}
			},
			loses:  1,
			exists: true,
		},
		"WrittenThenWrittenTooOften": {
			prepare: func(t *testing.T, b *dynamodb.Backend) *resourcepb.Resource {
				return fixture.Write(t, b, box("a", nil))
			},
			overtake: func(t *testing.T, b *dynamodb.Backend, stored *resourcepb.Resource) {
				for range 20 {
					stored = fixture.Write(t, b, stored)
				}
			},
			loses:   1,
			exists:  true,
			unknown: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			other := handle(t, s)
			res := c.prepare(t, other)
			db, streams := s.Clients(t)
			b, err := dynamodb.New(t.Context(), db, streams, &dynamodb.Options{Table: dynamofake.Table, Prefix: "test"})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			fixture.Write(t, b, box("other", nil)) // enters the type
			// The answer of the applied request is lost. The repetition waits until another writer has written.
			var lost atomic.Bool
			retried, overtaken := make(chan struct{}), make(chan struct{})
			var once sync.Once
			var passing atomic.Bool
			requests := 0
			s.SetFaults(func(op string) dynamofake.Fault {
				if op == "PutItem" {
					requests++
				}
				if op != "PutItem" || requests != c.loses {
					return dynamofake.Fault{}
				}
				lost.Store(true)
				return dynamofake.Fault{DropAnswer: true}
			})
			s.SetGate(func(op string) {
				if op == "PutItem" && lost.Load() && !passing.Load() {
					once.Do(func() { close(retried) })
					<-overtaken
				}
			})
			written := make(chan error, 1)
			go func() {
				_, err := b.WriteCAS(t.Context(), res)
				written <- err
			}()
			<-retried
			passing.Store(true)
			stored, err := other.Read(t.Context(), storage.StrongConsistency, res.GetId())
			if err != nil {
				t.Fatal(err)
			}
			c.overtake(t, other, stored)
			close(overtaken)
			if err := <-written; c.unknown {
				if !errors.Is(err, storage.ErrInconsistent) {
					t.Errorf("got %v, expected ErrInconsistent", err)
				}
			} else if err != nil {
				t.Errorf("the write was applied, but returned %v", err)
			}
			_, err = other.Read(t.Context(), storage.StrongConsistency, res.GetId())
			if exists := err == nil; exists != c.exists {
				t.Errorf("afterwards the resource exists: %v, expected %v", exists, c.exists)
			}
		})
	}
}

// A conflict is reported as a conflict, even if earlier requests failed.
func TestConflictAfterFailures(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	first := fixture.Write(t, b, box("a", nil))
	second := first
	for range 12 {
		second = fixture.Write(t, b, second)
	}
	fail := 2
	s.SetFaults(func(op string) dynamofake.Fault {
		if fail > 0 && op == "PutItem" {
			fail--
			return dynamofake.Fault{Code: "InternalServerError", Status: 500}
		}
		return dynamofake.Fault{}
	})
	if _, err := b.WriteCAS(t.Context(), box("a", nil)); !errors.Is(err, storage.ErrCASFailure) && !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("creating an existing resource: %v", err)
	}
	fail = 2
	if err := b.DeleteCAS(t.Context(), second.GetId(), second.GetVersion()); err != nil {
		t.Errorf("deleting: %v", err)
	}
}

// Throttling and failures do not end. Each call fails at its deadline, and nothing is written twice.
func TestStorms(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]dynamofake.Fault{
		"Throttled":      {Code: "ProvisionedThroughputExceededException"},
		"ThrottledTable": {Code: "ThrottlingException"},
		"Unavailable":    {Code: "ServiceUnavailable", Status: 503},
		"InternalError":  {Code: "InternalServerError", Status: 500},
		"Lost":           {DropAnswer: true},
		"Failed":         {InternalError: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			b := handle(t, s)
			w := watch(t, b)
			afterSnapshot(t, w)
			a := fixture.Write(t, b, box("a", nil))
			fixture.Next(t, w)
			s.SetFaults(func(op string) dynamofake.Fault {
				if op == "GetRecords" || op == "GetShardIterator" || op == "DescribeStream" {
					return dynamofake.Fault{}
				}
				return fault
			})
			owned := box("owned", nil)
			owned.Owner = a.GetId()
			for call, do := range map[string]func(ctx context.Context) error{
				"Write":  func(ctx context.Context) error { _, err := b.WriteCAS(ctx, a); return err },
				"Create": func(ctx context.Context) error { _, err := b.WriteCAS(ctx, owned); return err },
				"Read": func(ctx context.Context) error {
					_, err := b.Read(ctx, storage.StrongConsistency, a.GetId())
					return err
				},
				"List": func(ctx context.Context) error {
					_, err := b.List(ctx, storage.EventualConsistency, boxType, tenancy, "")
					return err
				},
				"OwnerReferences": func(ctx context.Context) error { _, err := b.OwnerReferences(ctx, a.GetId()); return err },
				"Commit": func(ctx context.Context) error {
					_, err := b.Commit(ctx, []storage.Op{{Write: box("c", nil)}})
					return err
				},
			} {
				err := do(fixture.CallTimeout(t.Context(), t, 300*time.Millisecond))
				if !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: got %v, expected the deadline's and ErrInconsistent", call, err)
				}
			}
			s.SetFaults(nil)
			stored, err := b.Read(t.Context(), storage.StrongConsistency, a.GetId())
			if err != nil {
				t.Fatal(err)
			}
			// Every write that was applied during the failures has one event; then the last write follows. A request whose caller
			// has given up may still arrive now.
			last, err := b.WriteCAS(t.Context(), stored)
			if errors.Is(err, storage.ErrCASFailure) {
				late, readErr := b.Read(t.Context(), storage.StrongConsistency, a.GetId())
				if readErr != nil || late.GetVersion() == stored.GetVersion() {
					t.Fatalf("refused without another writer: %v; %v", err, readErr)
				}
				last, err = b.WriteCAS(t.Context(), late)
			}
			if err != nil {
				t.Fatal(err)
			}
			versions := map[string]bool{}
			for {
				name, version, _ := seen(fixture.Next(t, w))
				if versions[version] {
					t.Errorf("an event was repeated")
				}
				versions[version] = true
				if name == "a" && version == last.GetVersion() {
					break
				}
			}
			if len(versions) > 4 {
				t.Errorf("%d changes for 4 writes", len(versions))
			}
		})
	}
}

// BatchGetItem leaves keys unprocessed, and several callers request the same key.
func TestUnprocessedKeys(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	var stored []*resourcepb.Resource
	for i := range 12 {
		stored = append(stored, fixture.Write(t, b, box(fmt.Sprint("box-", i), nil)))
	}
	var batches atomic.Int64
	s.SetFaults(func(op string) dynamofake.Fault {
		if op != "BatchGetItem" {
			return dynamofake.Fault{}
		}
		switch batches.Add(1) % 4 {
		case 0:
			return dynamofake.Fault{UnprocessedKeys: 100}
		case 1:
			return dynamofake.Fault{Code: "ProvisionedThroughputExceededException"}
		}
		return dynamofake.Fault{UnprocessedKeys: 2 * int(batches.Load()%2)}
	})
	var readers sync.WaitGroup
	for i := range 64 {
		readers.Go(func() {
			for n := range 20 {
				want := stored[(i+n)%len(stored)]
				res, err := b.Read(t.Context(), storage.StrongConsistency, want.GetId())
				if err != nil || res.GetVersion() != want.GetVersion() {
					t.Errorf("read: %v", err)
				}
				if _, err := b.Read(t.Context(), storage.StrongConsistency, box("none", nil).GetId()); !errors.Is(err, storage.ErrNotFound) {
					t.Errorf("read of an absent resource: %v", err)
				}
			}
		})
	}
	readers.Wait()
	if batches.Load() == 0 {
		t.Error("no reads were batched")
	}
}

// A transaction is delayed and sent again. A check that a resource is absent refuses the second attempt. Then the resource is
// absent again, and the first attempt arrives. The refused transaction must not be applied.
func TestCommitRefusedThenLate(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	other := handle(t, s)
	fixture.Write(t, other, boxIn(0, "first-")) // so the write of the blocker is no transaction
	transport := &http.Transport{ResponseHeaderTimeout: time.Second}
	t.Cleanup(transport.CloseIdleConnections)
	b := handleThrough(t, s, func(o *awsdynamodb.Options) { o.HTTPClient = &http.Client{Transport: transport} })
	res := fixture.Write(t, b, boxIn(0, "b-"))
	block := sync.OnceValue(func() *resourcepb.Resource { return fixture.Write(t, other, boxIn(0, "a-")) })
	var attempts atomic.Int64
	late, applied := make(chan struct{}), make(chan struct{})
	s.SetGate(func(op string) {
		if op != "TransactWriteItems" {
			return
		}
		if attempts.Add(1) == 1 {
			<-late
			close(applied)
			return
		}
		block() // all later attempts wait for it
	})
	_, err := b.Commit(t.Context(), []storage.Op{{Check: boxIn(0, "a-").GetId()}, {Write: res}})
	fixture.Remove(t, other, block())
	close(late)
	<-applied
	fixture.Write(t, handle(t, s, func(o *dynamodb.Options) { o.Prefix = "another" }), box("a", nil)) // arrives after it
	now, readErr := b.Read(t.Context(), storage.StrongConsistency, res.GetId())
	if readErr != nil {
		t.Fatal(readErr)
	}
	if now.GetVersion() != res.GetVersion() && !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("Commit answered %v, and wrote", err)
	}
}
