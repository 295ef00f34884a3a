package sqlite

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// newFollower returns a run of the feed that polls only on request, and the events that it publishes.
func newFollower(t testing.TB, s *Backend) (f *follower, published *[]*event) {
	t.Helper()
	c, err := s.handle.connectReader(t.Context(), 4<<10)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.close(); err != nil {
			t.Error(err)
		}
	})
	published = new([]*event)
	f = &follower{source: s.handle.source, conn: c, in: s.handle.source.openInbox()}
	f.publish = func(events []*event, end position) {
		if last := events[len(events)-1].At; last != end {
			t.Errorf("published up to position %v, the last event is at %v", end, last)
		}
		*published = append(*published, events...)
	}
	if f.at, err = c.newest(); err != nil {
		t.Fatal(err)
	}
	return f, published
}

func (r *follower) mustPoll(t testing.TB) {
	t.Helper()
	if err := r.pollFile(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// checkPublished checks that the events are the rows of the log after a position, each once.
func checkPublished(t testing.TB, f *follower, after position, events []*event) {
	t.Helper()
	var want []*event
	for more := true; more; {
		var page []*event
		var err error
		if page, after, more, err = f.conn.history(after, nil, 1<<20); err != nil {
			t.Fatal(err)
		}
		want = append(want, page...)
	}
	if len(events) != len(want) {
		t.Fatalf("published %d events, the log has %d rows", len(events), len(want))
	}
	for i, ev := range events {
		w := *want[i]
		if !proto.Equal(ev.Resource, w.Resource) {
			t.Errorf("event %d has resource %v, the log has %v", i, ev.Resource, w.Resource)
		}
		if w.Resource = ev.Resource; *ev != w {
			t.Errorf("event %d is %v, the log has %v", i, ev, w)
		}
	}
}

// Changes of this process are published as in the log, without a poll of the file.
func TestLocalChanges(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	f, published := newFollower(t, s)
	a := fixture.Write(t, s, resource("a", 1))
	fixture.Write(t, s, a)
	if _, err := s.Commit(t.Context(), []storage.Op{{Write: resource("b", 1)}, {Check: idOf("absent")}, {Write: resource("c", 2)}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteCAS(t.Context(), a); !errors.Is(err, storage.ErrCASFailure) {
		t.Fatalf("got error %v, expected ErrCASFailure", err)
	}
	file := lockAsOtherProcess(t, s) // all commits are announced by now
	if f.publishLocal() {
		t.Error("a poll was requested for writes of this process")
	}
	checkPublished(t, f, position{}, *published)
	unlockFile(t, file)
	fixture.Write(t, s, resource("d", 1))
	f.mustPoll(t)
	lockAsOtherProcess(t, s)
	if f.publishLocal() {
		t.Error("a poll was requested for rows that a poll has read")
	}
	checkPublished(t, f, position{}, *published)
}

// A batch is published even if one of its requests is refused, or if its commit fails once.
func TestLocalChangesOfBatch(t *testing.T) {
	t.Parallel()
	for failures := range int32(2) {
		t.Run(fmt.Sprint(failures, " failures"), func(t *testing.T) {
			t.Parallel()
			s, faults := openFaulty(t)
			f, published := newFollower(t, s)
			file := lockAsOtherProcess(t, s)
			var writers sync.WaitGroup
			const n = 5
			for i := range n {
				writers.Go(func() {
					res := resource(fmt.Sprint(i), 1)
					if i == 2 {
						res.Version = "refused"
					}
					if _, err := s.WriteCAS(t.Context(), res); (err != nil) != (i == 2) {
						t.Error(err)
					}
				})
			}
			fixture.Eventually(t, "all requests are in the queue", func() bool {
				s.handle.writer.queue.mu.Lock()
				defer s.handle.writer.queue.mu.Unlock()
				return len(s.handle.writer.queue.waiting) == n
			})

			faults.failSyncs.Store(failures)
			unlockFile(t, file)
			writers.Wait()
			lockAsOtherProcess(t, s) // all commits are announced by now
			if f.publishLocal() {
				t.Error("a poll was requested for writes of this process")
			}
			checkPublished(t, f, position{}, *published)
		})
	}
}

// Changes that the writer cannot pass on are read from the file.
func TestChangesReadFromFile(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(t *testing.T, s, other *Backend){
		"a deletion": func(t *testing.T, s, _ *Backend) {
			res := fixture.Write(t, s, resource("a", 1))
			if err := s.DeleteCAS(t.Context(), res.Id, res.Version); err != nil {
				t.Fatal(err)
			}
		},
		"a deletion beside a write": func(t *testing.T, s, _ *Backend) {
			res := fixture.Write(t, s, resource("a", 1))
			if _, err := s.Commit(t.Context(), []storage.Op{{Write: resource("b", 1)}, {Delete: res.Id, Version: res.Version}}); err != nil {
				t.Fatal(err)
			}
		},
		"another handle's write before": func(t *testing.T, s, other *Backend) {
			fixture.Write(t, other, resource("a", 1))
			fixture.Write(t, s, resource("b", 1))
		},
		"more than the inbox holds": func(t *testing.T, s, _ *Backend) {
			for i := range maxInboxBytes>>19 + 1 {
				res := resource(fmt.Sprint(i), 0)
				res.Data.Value = make([]byte, 512<<10)
				fixture.Write(t, s, res)
			}
		},
		"a write without an inbox": func(t *testing.T, s, _ *Backend) {
			in := s.handle.source.inbox.Swap(nil)
			fixture.Write(t, s, resource("a", 1))
			s.handle.source.inbox.Store(in)
			fixture.Write(t, s, resource("b", 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			s, other := withoutSync(t, open(t, path, nil)), withoutSync(t, open(t, path, nil))
			f, published := newFollower(t, s)
			fixture.Write(t, s, resource("first", 1))
			change(t, s, other)
			lockAsOtherProcess(t, s) // all commits are announced by now
			if !f.publishLocal() {
				t.Error("no poll was requested")
			}
			f.mustPoll(t)
			checkPublished(t, f, position{}, *published)
		})
	}
}

// In any interleaving, each change is published once, in the order of the log.
func TestLocalAndRemoteChanges(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s, other := withoutSync(t, open(t, path, nil)), withoutSync(t, open(t, path, nil))
	f, published := newFollower(t, s)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	change := func(s *Backend) {
		res := resource(fmt.Sprint(r.IntN(5)), r.Int64N(100))
		old, err := s.Read(t.Context(), storage.StrongConsistency, res.Id)
		switch {
		case err != nil:
		case r.IntN(4) == 0:
			if err := s.DeleteCAS(t.Context(), old.Id, old.Version); err != nil {
				t.Fatal(err)
			}
			return
		default:
			res.Version = old.Version
		}
		fixture.Write(t, s, res)
	}
	poll := false
	for range 300 {
		switch r.IntN(8) {
		case 0:
			change(other)
		case 1, 2:
			poll = f.publishLocal() || poll
		case 3:
			f.mustPoll(t)
			poll = false
		default:
			change(s)
		}
	}
	change(s)
	file := lockAsOtherProcess(t, s) // all commits are announced by now
	if f.publishLocal() || poll {
		f.mustPoll(t)
	}
	unlockFile(t, file)
	t.Logf("seed %d, %d rows", seed, len(*published))
	checkPublished(t, f, position{}, *published)
}

// If an older copy replaces the file under the run, changes of this process do not continue the old history.
func TestLocalChangesOfReplacedHistory(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"shorter": "DELETE FROM log WHERE seq > 1",
		"empty":   "DELETE FROM log",
		"other":   "UPDATE log SET tag = tag + 1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, newPath(t), nil)
			f, published := newFollower(t, s)
			fixture.Write(t, s, resource("a", 1))
			fixture.Write(t, s, resource("b", 1))
			file := lockAsOtherProcess(t, s)
			if f.publishLocal() || len(*published) != 2 {
				t.Fatalf("got %d events, expected 2", len(*published))
			}
			unlockFile(t, file)
			execSQL(t, openDirect(t, s.Path()), sql)
			fixture.Write(t, s, resource("c", 1))
			lockAsOtherProcess(t, s)
			if !f.publishLocal() {
				t.Error("no poll was requested")
			}
			if err := f.pollFile(t.Context()); !errors.Is(err, storage.ErrCompacted) || len(*published) != 2 {
				t.Errorf("got error %v and %d events; expected ErrCompacted and 2", err, len(*published))
			}
		})
	}
}

// The writer notifies before it releases the lock, so the notifications come in the order of commits and the last one has
// the newest position.
func TestNotificationsInCommitOrder(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	f, _ := newFollower(t, s)
	other, err := os.OpenFile(s.handle.lockFile.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	f.in.mu.Lock() // blocks the writer in its local notification, which comes first
	written := make(chan string, 1)
	go func() {
		res, err := s.WriteCAS(t.Context(), resource("a", 1))
		if err != nil {
			t.Error(err)
		}
		written <- res.GetVersion()
	}()
	fixture.Eventually(t, "the commit", func() bool { return names(t, s) == "a " })
	for range 10_000 {
		if taken, err := tryLock(other); taken || err != nil {
			t.Errorf("another process got the lock before the notification: %v, error %v", taken, err)
			break
		}
	}
	f.in.mu.Unlock()
	version := <-written
	if m, known := s.handle.lockFile.lastNotified(); !known || m.version() != version {
		t.Errorf("notified of version %q, known is %v; expected version %q", m.version(), known, version)
	}
}

// Programs of older versions notify without a position, so each of their notifications may announce new rows.
func TestNotificationWithoutPosition(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	if m, known := s.handle.lockFile.lastNotified(); known {
		t.Errorf("notified of %v before any notification", m)
	}
	s.handle.lockFile.notify(position{5, 7})
	if m, known := s.handle.lockFile.lastNotified(); !known || m != (position{5, 7}) {
		t.Errorf("notified of %v, known is %v; expected row 5", m, known)
	}
	if _, err := s.handle.lockFile.file.WriteAt([]byte{0}, 0); err != nil {
		t.Fatal(err)
	}
	if m, known := s.handle.lockFile.lastNotified(); known {
		t.Errorf("notified of %v, expected no position", m)
	}
}

// The inbox is bounded while a run is blocked on the file, even for deletions, which add no bytes of a resource, and
// for small writes.
func TestInboxIsBounded(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string][]row{"deletions": nil, "small writes": {{data: []byte{1}}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := &inbox{signal: make(chan struct{}, 1)}
			const n = 140_000
			maxLen := 0
			for seq := range int64(n) {
				in.add([]committedBatch{{after: position{seq, 1}, end: position{seq + 1, 1}, rows: rows}})
				maxLen = max(maxLen, len(in.localCommits))
			}
			if maxLen == n {
				t.Errorf("the inbox holds all %d batches", n)
			}
			if _, poll := in.drain(); !poll {
				t.Error("no poll was requested for dropped batches")
			}
		})
	}
}
