package dynamodb_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// splitBoxes splits the partition of the boxes, in a store without buckets, at two of them. Afterwards one partition contains boxes only.
func splitBoxes(s *dynamofake.Server) {
	for _, name := range []string{"box-02", "box-04"} {
		s.SplitAt("test\x00r"+boxType.Group+"\x00"+boxType.Kind, "default\x00default\x00"+name)
	}
}

// opened opens a watch of the boxes within the test's time.
func opened(t *testing.T, b storage.Backend) storage.Watch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fixture.Timeout)
	defer cancel()
	w, err := b.WatchList(ctx, boxType, tenancy, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// resumed opens a watch of the boxes from a cursor.
func resumed(t *testing.T, b *dynamodb.Backend, cursor string) storage.Watch {
	t.Helper()
	w, err := b.WatchFrom(t.Context(), boxType, tenancy, "", cursor)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// A partition that contains nothing but a part of one type is reached by no tick with a key of its own. Old and new handles open
// watches of it, and these return every change once.
func TestSplitInsideType(t *testing.T) {
	t.Parallel()
	for name, reopen := range map[string]bool{"OldHandle": false, "NewHandle": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const writers, writes = 6, 20
			s := dynamofake.New(t)
			b := handle(t, s, withBuckets(1))
			afterSnapshot(t, opened(t, b))
			splitBoxes(s)
			if reopen {
				b = handle(t, s)
			}
			w := opened(t, b)
			shown := afterSnapshot(t, w)
			j := &journal{}
			load(t, b, j, writers, writes, func(int) {})
			checkFollowed(t, "", follow(t, w, writers), shown, j)
			// The writers have stopped, and the stream continues to be read.
			late := opened(t, b)
			if shown := afterSnapshot(t, late); len(shown) != writers {
				t.Errorf("the snapshot has %d boxes, expected %d", len(shown), writers)
			}
			last := fixture.Write(t, b, box("box-03x", nil))
			for _, w := range []storage.Watch{w, late} {
				if _, version, _ := seen(fixture.Next(t, w)); version != last.GetVersion() {
					t.Error("another event than the last write's")
				}
			}
		})
	}
}

// checkFollowed checks the events of a watch against the writes. shown has the versions in its snapshot.
func checkFollowed(t *testing.T, w string, got map[string][]string, shown map[string]string, j *journal) {
	t.Helper()
	for name, versions := range got {
		want := j.of(name)
		if version, there := shown[name]; there {
			want = want[slices.Index(want, version)+1:]
		} else if n := len(want) - len(versions); n > 0 && want[n-1][:8] == "deleted " {
			want = want[n:] // the snapshot was read after this deletion
		}
		if !slices.Equal(versions, want) {
			t.Errorf("%s %s: %d events for %d writes, or a different order", w, name, len(versions), len(want))
		}
	}
}

// Watches that are opened amid splits inside the type, roll-overs and late listings lose and repeat nothing.
func TestJoinDuringSplitsInsideType(t *testing.T) {
	t.Parallel()
	const writers, watches = 6, 8
	s := dynamofake.New(t)
	b := handle(t, s, withBuckets(1))
	afterSnapshot(t, opened(t, b))
	splitBoxes(s)
	j := &journal{}
	turns := newWriteTurns()
	loadWhile(t, b, j, writers, turns.take)
	turns.give(writers * 10)
	turns.duringScans(s, 20)
	handles := []*dynamodb.Backend{b, handle(t, s)}
	type started struct {
		shown map[string]string
		w     storage.Watch
	}
	var all []started
	for i := range watches {
		w := opened(t, handles[i%2])
		all = append(all, started{afterSnapshot(t, w), w})
		switch i % 6 {
		case 0:
			s.Split(true)
		case 1:
			s.Roll()
		case 2:
			s.Show()
		case 3:
			s.Split(false)
		}
	}
	s.Show()
	close(turns.end) // each watch has events, at least the last one of each writer
	for i, started := range all {
		checkFollowed(t, string(rune('A'+i)), follow(t, started.w, writers), started.shown, j)
	}
}

// A watch resumes at a shard of which the reader has no number: no record has arrived there since it was opened, and no tick reaches it.
func TestResumeAtQuietShard(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s, withBuckets(1))
	afterSnapshot(t, opened(t, b))
	splitBoxes(s)
	w := opened(t, b)
	afterSnapshot(t, w)
	before := w.Cursor()
	first := fixture.Write(t, b, box("box-03", nil))
	fixture.Next(t, w)
	between := w.Cursor()
	second := fixture.Write(t, b, first)
	fixture.Next(t, w)
	after := w.Cursor()
	w.Close()
	other := handle(t, s)
	afterSnapshot(t, opened(t, other)) // its reader begins behind both records
	var open []storage.Watch
	for cursor, want := range map[string][]string{before: {first.GetVersion(), second.GetVersion()}, between: {second.GetVersion()}, after: nil} {
		w := resumed(t, other, cursor)
		for _, version := range want {
			if _, got, _ := seen(fixture.Next(t, w)); got != version {
				t.Fatalf("got version %s, expected %s of %d events after the cursor", got, version, len(want))
			}
		}
		open = append(open, w)
	}
	s.Roll()
	third := fixture.Write(t, other, second)
	for _, w := range open {
		if _, got, _ := seen(fixture.Next(t, w)); got != third.GetVersion() {
			t.Errorf("got version %s, expected %s of the next write", got, third.GetVersion())
		}
	}
}

// A listing omits the shard of a resource that was deleted long ago, and whose tombstone has expired. When it is listed later, its records
// are no events: the snapshot without the resource is newer. Records after the snapshot are events, also of a new resource of that name.
func TestExpiredTombstoneInOmittedShard(t *testing.T) {
	t.Parallel()
	s := dynamofake.New(t)
	b := handle(t, s)
	afterSnapshot(t, opened(t, b))
	s.Split(true)
	fixture.Remove(t, b, fixture.Write(t, b, box("a", nil)))
	s.Advance(3 * time.Hour)
	s.Expire('r')
	if n := s.Items('r'); n != 0 {
		t.Fatalf("%d items remain", n)
	}
	w := opened(t, handle(t, s))
	if shown := afterSnapshot(t, w); len(shown) > 0 {
		t.Fatalf("the snapshot has %v", shown)
	}
	again := fixture.Write(t, b, box("a", nil))
	s.Show()
	if _, version, _ := seen(fixture.Next(t, w)); version != again.GetVersion() {
		t.Errorf("the first event is %s, expected the new creation", version)
	}
}
