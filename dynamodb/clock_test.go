package dynamodb_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestSkewedClocks watches and resumes with local clocks that are wrong, some by more than AWS accepts. No event is lost.
func TestSkewedClocks(t *testing.T) {
	t.Parallel()
	for _, ahead := range []time.Duration{-40 * time.Minute, -10 * time.Minute, -3 * time.Minute, 10 * time.Minute, 40 * time.Minute} {
		t.Run(ahead.String(), func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			s.SetShards(3)
			s.Advance(-ahead)
			b := handle(t, s)
			w := watch(t, b)
			afterSnapshot(t, w)
			begin := w.Cursor()
			j := &journal{}
			load(t, b, j, 4, 10, func(int) {}).Wait()
			again, err := handle(t, s).WatchFrom(t.Context(), boxType, tenancy, "", begin)
			if err != nil {
				t.Fatal(err)
			}
			defer again.Close()
			for _, w := range []storage.Watch{w, again} {
				for name, versions := range follow(t, w, 4) {
					if want := j.of(name); !slices.Equal(versions, want) {
						t.Errorf("%s: the watch returned the versions %v, expected %v", name, versions, want)
					}
				}
			}
		})
	}
}

// clockBehind returns a local time that is 40 minutes behind.
func clockBehind() time.Time { return time.Now().Add(-40 * time.Minute) }

// TestJoinWithAWriterBehind checks that a watch does not repeat states of its snapshot, even if the writer's clock is wrong.
func TestJoinWithAWriterBehind(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	writer, b := handle(t, s), handle(t, s)
	dynamodb.SetLocalClock(writer, clockBehind)
	first := fixture.Write(t, writer, box("a", nil))
	gone := fixture.Write(t, writer, box("gone", nil))
	// While the snapshot is read, the stream is paused and the resources change.
	reading, written := make(chan struct{}), make(chan struct{})
	var once sync.Once
	s.SetGate(func(op string) {
		switch op {
		case "Query":
			once.Do(func() { close(reading) })
			<-written
		case "GetRecords":
			select {
			case <-reading:
				<-written
			default:
			}
		}
	})
	opened := make(chan storage.Watch, 1)
	go func() {
		w, err := b.WatchList(t.Context(), boxType, tenancy, "")
		if err != nil {
			t.Error(err)
		}
		opened <- w
	}()
	<-reading
	second := fixture.Write(t, writer, fixture.Write(t, writer, first))
	fixture.Remove(t, writer, gone)
	close(written)
	w := <-opened
	if w == nil {
		t.FailNow()
	}
	defer w.Close()
	if shown := afterSnapshot(t, w); shown["a"] != second.GetVersion() || shown["gone"] != "" {
		t.Fatalf("the snapshot contains %v", shown)
	}
	third := fixture.Write(t, writer, second)
	if name, version, _ := seen(fixture.Next(t, w)); version != third.GetVersion() {
		t.Errorf("the first event after the snapshot is %s at %s, expected a at %s", name, version, third.GetVersion())
	}
}

// Eventual reads are monotonic, even if the writer's clock is wrong.
func TestMonotonicReadsOfAWriterBehind(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	writer, b := handle(t, s), handle(t, s)
	dynamodb.SetLocalClock(writer, clockBehind)
	second := fixture.Write(t, writer, fixture.Write(t, writer, box("a", nil)))
	gone := fixture.Write(t, writer, box("gone", nil))
	fixture.Remove(t, writer, gone)
	for _, res := range []*resourcepb.Resource{second, gone} {
		if _, err := b.Read(t.Context(), storage.StrongConsistency, res.GetId()); err != nil && !errors.Is(err, storage.ErrNotFound) {
			t.Fatal(err)
		}
	}
	s.SetLag(1)
	if res, err := b.Read(t.Context(), storage.EventualConsistency, second.GetId()); err != nil || res.GetVersion() != second.GetVersion() {
		t.Errorf("an eventual read after a strong one returned version %q, %v, expected %q", res.GetVersion(), err, second.GetVersion())
	}
	if _, err := b.Read(t.Context(), storage.EventualConsistency, gone.GetId()); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a deleted resource was read again: %v", err)
	}
}

// A process is suspended after it has composed a write and before it signs it. Readers derive the age of a state from the count in
// the version, so the count must contain the send time of the write.
func TestStoppedWriter(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	freezer := dynamofake.NewFreezer("PutItem")
	writer := handleThrough(t, s, freezer.Option)
	first := fixture.Write(t, writer, box("a", nil))
	freezer.Freeze()
	written := make(chan *resourcepb.Resource, 1)
	go func() {
		res, err := writer.WriteCAS(t.Context(), first)
		if err != nil {
			t.Error(err)
		}
		written <- res
	}()
	freezer.Wait()
	s.Advance(3 * time.Hour)
	freezer.Thaw()
	second := <-written
	if second == nil {
		t.FailNow()
	}
	b := handle(t, s)
	if _, err := b.Read(t.Context(), storage.StrongConsistency, second.GetId()); err != nil {
		t.Fatal(err)
	}
	s.SetLag(1)
	if res, err := b.Read(t.Context(), storage.EventualConsistency, second.GetId()); err != nil || res.GetVersion() != second.GetVersion() {
		t.Errorf("an eventual read after a strong one returned version %q, %v, expected %q", res.GetVersion(), err, second.GetVersion())
	}
}

// GetRecords returns many empty answers before it returns the records, and a reader's pages are slow. A resumed watch misses
// nothing acknowledged, and a watch repeats nothing after its snapshot.
func TestEmptyPagesBeforeData(t *testing.T) {
	t.Parallel()
	const writers, shards = 6, 8
	s := dynamofake.New(t)
	s.SetShards(shards)
	s.SetEmptyPages(4)
	b := handle(t, s)
	w := watch(t, b)
	afterSnapshot(t, w)
	begin := w.Cursor()
	j := &journal{}
	load(t, b, j, writers, 8, func(int) {}).Wait()
	fresh := watch(t, b)
	shown := afterSnapshot(t, fresh)
	for n := range writers {
		name := fmt.Sprintf("box-%02d", n)
		if versions := j.of(name); shown[name] != versions[len(versions)-1] {
			t.Fatalf("the snapshot shows an old version of %s", name)
		}
	}
	later, err := handle(t, s).WatchFrom(t.Context(), boxType, tenancy, "", begin)
	if err != nil {
		t.Fatal(err)
	}
	defer later.Close()
	for what, w := range map[string]storage.Watch{"following": w, "resumed": later} {
		for name, versions := range follow(t, w, writers) {
			if want := j.of(name); !slices.Equal(versions, want) {
				t.Errorf("the %s watch returned the versions %v of %s, expected %v", what, versions, name, want)
			}
		}
	}
	last := fixture.Write(t, b, box("last", nil))
	for what, w := range map[string]storage.Watch{"opened last": fresh, "opened first": w, "resumed": later} {
		if name, version, _ := seen(fixture.Next(t, w)); version != last.GetVersion() {
			t.Errorf("the watch %s returned %s at %s, expected last at %s", what, name, version, last.GetVersion())
		}
	}
}
