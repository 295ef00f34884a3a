package dynamodb_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// Shards split, roll over and close under load, some of their children are listed late, and iterators expire. Every event arrives
// once, in the order of its key.
func TestShardsChangeUnderLoad(t *testing.T) {
	t.Parallel()
	const writers = 8
	for name, disturb := range map[string]func(s *dynamofake.Server, n int){
		"Roll":   func(s *dynamofake.Server, _ int) { s.Roll() },
		"Split":  func(s *dynamofake.Server, _ int) { s.Split(false) },
		"Expire": func(s *dynamofake.Server, _ int) { s.ExpireIterators() },
		"ChildrenListedLate": func(s *dynamofake.Server, n int) {
			// The last of the six lists all shards, because writes may follow it.
			if n%2 == 0 && n < 6 {
				s.Split(true)
			} else {
				s.Show()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			writes := 24
			if name == "ChildrenListedLate" {
				writes = 60 // the reader lists the shards between an omission and the next listing of all
			}
			s := dynamofake.New(t)
			s.SetShards(3)
			b := handle(t, s)
			w := watch(t, b)
			afterSnapshot(t, w)
			var done atomic.Int64
			j := &journal{}
			running := load(t, b, j, writers, writes, func(int) {
				if n := int(done.Add(1)); n%(writers*writes/6) == 0 {
					disturb(s, n/(writers*writes/6))
				}
			})
			// The last disturbance may have hidden the shards of the last writes. They are listed late, but they are listed.
			shown := make(chan struct{})
			go func() { defer close(shown); running.Wait(); s.Show() }()
			got := follow(t, w, writers)
			<-shown
			for name, versions := range got {
				if want := j.of(name); !slices.Equal(versions, want) {
					t.Errorf("%s: %d events for %d writes, or a different order", name, len(versions), len(want))
				}
			}
		})
	}
}

// A watch whose snapshot is taken under load continues with exactly the change after each state in the snapshot.
func TestJoinUnderWriteLoad(t *testing.T) {
	t.Parallel()
	const writers, watches = 6, 8
	s := dynamofake.New(t)
	s.SetShards(2)
	b := handle(t, s)
	j := &journal{}
	all := make(chan struct{})
	turns := newWriteTurns()
	running := loadWhile(t, b, j, writers, turns.take)
	go func() { running.Wait(); close(all) }()
	turns.give(writers * 10)
	turns.duringScans(s, 4)
	type started struct {
		shown map[string]string
		got   map[string][]string
	}
	var each sync.WaitGroup
	results := make([]started, watches)
	for i := range results {
		w := watch(t, b)
		results[i].shown = afterSnapshot(t, w)
		each.Go(func() { results[i].got = follow(t, w, writers) })
		if i%2 == 0 {
			s.Split(false)
		} else if i%4 == 1 {
			s.Roll()
		}
	}
	close(turns.end) // every watch has events, at least the last one of each writer
	each.Wait()
	<-all
	for i, r := range results {
		for n := range writers {
			name := fmt.Sprintf("box-%02d", n)
			want := j.of(name)
			from := 0
			if version, ok := r.shown[name]; ok {
				from = slices.Index(want, version) + 1
				if from == 0 {
					t.Fatalf("watch %d returned a version of %s that no write returned", i, name)
				}
			} else if from = len(want) - len(r.got[name]); from < 0 || from > 0 && want[from-1][:8] != "deleted " {
				t.Fatalf("watch %d: %s was not in the snapshot, but its first event is not its creation", i, name)
			}
			if !slices.Equal(r.got[name], want[from:]) {
				t.Errorf("watch %d, %s: %d events after the snapshot, expected %d", i, name, len(r.got[name]), len(want[from:]))
			}
		}
	}
}

// A watch resumed in another process continues across shards that were split meanwhile.
func TestResumeAcrossShards(t *testing.T) {
	t.Parallel()
	const writers, writes = 5, 24
	s := dynamofake.New(t)
	s.SetShards(2)
	b := handle(t, s)
	w := watch(t, b)
	afterSnapshot(t, w)
	begin := w.Cursor()
	var done atomic.Int64
	j := &journal{}
	load(t, b, j, writers, writes, func(int) {
		if n := done.Add(1); n%40 == 0 {
			s.Split(false)
		} else if n%90 == 0 {
			s.Roll()
		}
	})
	got := map[string][]string{}
	var cursors []string
	var place []map[string]int
	for finished := 0; finished < writers; {
		name, version, last := seen(fixture.Next(t, w))
		got[name] = append(got[name], version)
		counts := map[string]int{}
		for name, versions := range got {
			counts[name] = len(versions)
		}
		cursors, place = append(cursors, w.Cursor()), append(place, counts)
		if last {
			finished++
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	s.Split(false)
	other := handle(t, s)
	tries := []int{-1, 0, 1, 7, len(cursors) / 3, len(cursors) / 2, len(cursors) - 2}
	for _, i := range tries {
		cursor, counts := begin, map[string]int{}
		if i >= 0 {
			cursor, counts = cursors[i], place[i]
		}
		w, err := other.WatchFrom(t.Context(), boxType, tenancy, "", cursor)
		if err != nil {
			t.Fatal(err)
		}
		if w.Cursor() != cursor {
			t.Error("before its first event a resumed watch has another cursor than the one given")
		}
		left := 0
		for name, versions := range got {
			if counts[name] < len(versions) {
				left++
			}
		}
		again := follow(t, w, left)
		w.Close()
		for name, versions := range got {
			if !slices.Equal(again[name], versions[counts[name]:]) {
				t.Errorf("after event %d, %s: %d events, expected %d", i, name, len(again[name]), len(versions)-counts[name])
			}
		}
	}
}

// A stream that was disabled and enabled again is a different stream. Neither contains the writes in between.
func TestStreamDisabled(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	w := watch(t, b)
	afterSnapshot(t, w)
	first := fixture.Write(t, b, box("a", []byte("1")))
	if _, version, _ := seen(fixture.Next(t, w)); version != first.GetVersion() {
		t.Fatal("another event than the write's")
	}
	cursor := w.Cursor()
	s.Disable()
	s.Enable()
	closedWith(t, w)
	old, err := b.WatchFrom(t.Context(), boxType, tenancy, "", cursor)
	if err == nil {
		closedWith(t, old, storage.ErrCompacted)
	} else if !errors.Is(err, storage.ErrCompacted) {
		t.Fatal(err)
	}
	again := watch(t, b)
	if shown := afterSnapshot(t, again); shown["a"] != first.GetVersion() {
		t.Fatalf("the new snapshot contains %v", shown)
	}
	second := fixture.Write(t, b, first)
	if _, version, _ := seen(fixture.Next(t, again)); version != second.GetVersion() {
		t.Fatal("another event than the write's")
	}
}

func TestTrimmedHistory(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	w := watch(t, b)
	afterSnapshot(t, w)
	cursor := w.Cursor()
	last := box("a", nil)
	for range 5 {
		last = fixture.Write(t, b, last)
		fixture.Next(t, w)
	}
	fresh := w.Cursor()
	s.Trim()
	old, err := b.WatchFrom(t.Context(), boxType, tenancy, "", cursor)
	if err == nil {
		closedWith(t, old, storage.ErrCompacted)
	} else if !errors.Is(err, storage.ErrCompacted) {
		t.Fatal(err)
	}
	// A watch that has returned everything loses nothing.
	last = fixture.Write(t, b, last)
	now, err := b.WatchFrom(t.Context(), boxType, tenancy, "", fresh)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	for _, w := range []storage.Watch{w, now} {
		if _, version, _ := seen(fixture.Next(t, w)); version != last.GetVersion() {
			t.Fatal("another event than the last write's")
		}
	}
}

// A watch survives a short failure of the stream. A long one ends the watch.
func TestStreamOutage(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	patient := handle(t, s, func(o *dynamodb.Options) { o.Outage = fixture.Timeout })
	impatient := handle(t, s, func(o *dynamodb.Options) { o.Outage = 200 * time.Millisecond })
	w := watch(t, patient)
	afterSnapshot(t, w)
	lost := watch(t, impatient)
	afterSnapshot(t, lost)
	s.SetFaults(func(op string) dynamofake.Fault {
		if op == "GetRecords" || op == "GetShardIterator" {
			return dynamofake.Fault{Code: "InternalServerError", Status: 500}
		}
		return dynamofake.Fault{}
	})
	stored := fixture.Write(t, patient, box("a", nil))
	closedWith(t, lost)
	s.SetFaults(nil)
	if _, version, _ := seen(fixture.Next(t, w)); version != stored.GetVersion() {
		t.Fatal("another event than the write's")
	}
	again := watch(t, impatient)
	if shown := afterSnapshot(t, again); shown["a"] != stored.GetVersion() {
		t.Fatalf("the new snapshot contains %v", shown)
	}
}

// The removal of a tombstone by DynamoDB is no change. The deletion of an item by an operator is a deletion.
func TestExpiredTombstones(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	w := watch(t, b)
	afterSnapshot(t, w)
	a := fixture.Write(t, b, box("a", nil))
	fixture.Remove(t, b, a)
	fixture.Next(t, w)
	if ev := fixture.Next(t, w); ev.GetDelete().GetResource().GetVersion() != a.GetVersion() {
		t.Fatalf("got %v, expected the deletion with the last version", ev)
	}
	s.Expire('r')
	if n := s.Items('r'); n != 0 {
		t.Fatalf("%d items remain", n)
	}
	again := fixture.Write(t, b, box("a", nil))
	if _, version, _ := seen(fixture.Next(t, w)); version != again.GetVersion() {
		t.Fatal("the event is not the new creation")
	}
}

// An idle stream is read no more often than IdlePoll allows.
func TestIdlePolling(t *testing.T) {
	t.Parallel()
	const idle = 50 * time.Millisecond
	s := dynamofake.New(t)
	b := handle(t, s, func(o *dynamodb.Options) { o.IdlePoll = idle })
	w := watch(t, b)
	afterSnapshot(t, w)
	quiet := make(chan struct{})
	var once sync.Once
	polls := 0
	s.SetFaults(func(op string) dynamofake.Fault {
		if polls++; polls == 15 {
			once.Do(func() { close(quiet) }) // by now the pauses have doubled up to IdlePoll
		}
		return dynamofake.Fault{}
	})
	<-quiet
	begin, from := time.Now(), s.Calls("GetRecords")
	<-time.After(10 * idle)
	calls := s.Calls("GetRecords") - from
	if maxCalls := int(time.Since(begin)/idle) + 2; calls > maxCalls {
		t.Errorf("%d calls in %v, expected at most %d", calls, time.Since(begin), maxCalls)
	}
}
