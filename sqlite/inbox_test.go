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

// newFollower returns a run of the feed that looks only where a test does, and what it has published.
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
			t.Errorf("published up to %v, the last row is %v", end, last)
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

// checkPublished checks that events are the rows of the log after a position, each once.
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
		t.Fatalf("%d events, the log has %d", len(events), len(want))
	}
	for i, ev := range events {
		w := *want[i]
		if !proto.Equal(ev.Resource, w.Resource) {
			t.Errorf("event %d shows %v, the log has %v", i, ev.Resource, w.Resource)
		}
		if w.Resource = ev.Resource; *ev != w {
			t.Errorf("event %d is %v, the log has %v", i, ev, w)
		}
	}
}

// What this process writes comes without a look in the file, as the log has it.
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
		t.Fatalf("%v, expected ErrCASFailure", err)
	}
	file := lockAsOtherProcess(t, s) // so that all was announced
	if f.publishLocal() {
		t.Error("the file is looked into for own writes")
	}
	checkPublished(t, f, position{}, *published)
	unlockFile(t, file)
	fixture.Write(t, s, resource("d", 1))
	f.mustPoll(t)
	lockAsOtherProcess(t, s)
	if f.publishLocal() {
		t.Error("the file is looked into for what a look has shown")
	}
	checkPublished(t, f, position{}, *published)
}

// A batch one of whose members is refused is told of, and so is one whose commit fails once.
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
			fixture.Eventually(t, "all stand in line", func() bool {
				s.handle.writer.queue.mu.Lock()
				defer s.handle.writer.queue.mu.Unlock()
				return len(s.handle.writer.queue.waiting) == n
			})

			faults.failSyncs.Store(failures)
			unlockFile(t, file)
			writers.Wait()
			lockAsOtherProcess(t, s) // so that all was announced
			if f.publishLocal() {
				t.Error("the file is looked into for own writes")
			}
			checkPublished(t, f, position{}, *published)
		})
	}
}

// What the writer cannot tell comes from the file.
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
		"more than is kept": func(t *testing.T, s, _ *Backend) {
			for i := range maxInboxBytes>>19 + 1 {
				res := resource(fmt.Sprint(i), 0)
				res.Data.Value = make([]byte, 512<<10)
				fixture.Write(t, s, res)
			}
		},
		"an own write that nobody attended": func(t *testing.T, s, _ *Backend) {
			in := s.handle.source.inbox.Swap(nil)
			fixture.Write(t, s, resource("a", 1))
			s.handle.source.inbox.Store(in)
			fixture.Write(t, s, resource("b", 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newPath(t)
			s, other := open(t, path, nil), open(t, path, nil)
			f, published := newFollower(t, s)
			fixture.Write(t, s, resource("first", 1))
			change(t, s, other)
			lockAsOtherProcess(t, s) // so that all was announced
			if !f.publishLocal() {
				t.Error("the file is not looked into")
			}
			f.mustPoll(t)
			checkPublished(t, f, position{}, *published)
		})
	}
}

// Whatever interleaves, each change is published once, in the order of the log.
func TestLocalAndRemoteChanges(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s, other := open(t, path, nil), open(t, path, nil)
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
	look := false
	for range 300 {
		switch r.IntN(8) {
		case 0:
			change(other)
		case 1, 2:
			look = f.publishLocal() || look
		case 3:
			f.mustPoll(t)
			look = false
		default:
			change(s)
		}
	}
	change(s)
	file := lockAsOtherProcess(t, s) // so that all was announced
	if f.publishLocal() || look {
		f.mustPoll(t)
	}
	unlockFile(t, file)
	t.Logf("seed %d, %d rows", seed, len(*published))
	checkPublished(t, f, position{}, *published)
}

// Own changes to an older copy of the file, put in place under the run, are not taken for what comes next.
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
				t.Fatalf("%d events", len(*published))
			}
			unlockFile(t, file)
			execSQL(t, openDirect(t, s.Path()), sql)
			fixture.Write(t, s, resource("c", 1))
			lockAsOtherProcess(t, s)
			if !f.publishLocal() {
				t.Error("the file is not looked into")
			}
			if err := f.pollFile(t.Context()); !errors.Is(err, storage.ErrCompacted) || len(*published) != 2 {
				t.Errorf("%v, %d events; expected ErrCompacted", err, len(*published))
			}
		})
	}
}

// The doorbell is rung before another process's turn, so that it names the newest row: whoever hears it knows whether that is news.
func TestNotificationsInCommitOrder(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	f, _ := newFollower(t, s)
	other, err := os.OpenFile(s.handle.lockFile.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	f.in.mu.Lock() // the writer tells this process first
	res := fixture.Write(t, s, resource("a", 1))
	for range 10_000 {
		if taken, err := tryLock(other); taken || err != nil {
			t.Errorf("another process has its turn before the bell was rung: %v, %v", taken, err)
			break
		}
	}
	f.in.mu.Unlock()
	lockAsOtherProcess(t, s)
	if m, known := s.handle.lockFile.lastNotified(); !known || m.version() != res.Version {
		t.Errorf("rung for %q, %v; written was %q", m.version(), known, res.Version)
	}
}

// A program from before rings without a mark: that may always be news.
func TestNotificationWithoutPosition(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	if m, known := s.handle.lockFile.lastNotified(); known {
		t.Errorf("rung for %v, nobody has rung", m)
	}
	s.handle.lockFile.notify(position{5, 7})
	if m, known := s.handle.lockFile.lastNotified(); !known || m != (position{5, 7}) {
		t.Errorf("rung for %v, %v; expected row 5", m, known)
	}
	if _, err := s.handle.lockFile.file.WriteAt([]byte{0}, 0); err != nil {
		t.Fatal(err)
	}
	if m, known := s.handle.lockFile.lastNotified(); known {
		t.Errorf("rung for %v, expected nothing known", m)
	}
}

// While a run waits for the file, what waits for the run is bounded, although a deletion comes without bytes of a resource, and a
// write with few.
func TestInboxIsBounded(t *testing.T) {
	t.Parallel()
	for name, rows := range map[string][]row{"deletions": nil, "small writes": {{data: []byte{1}}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := &inbox{signal: make(chan struct{}, 1)}
			const n = 200_000
			most := 0
			for seq := range int64(n) {
				in.add([]committedBatch{{after: position{seq, 1}, end: position{seq + 1, 1}, rows: rows}})
				most = max(most, len(in.localCommits))
			}
			if most == n {
				t.Errorf("all of %d additions are kept", n)
			}
			if _, look := in.drain(); !look {
				t.Error("the file is not looked into for what was dropped")
			}
		})
	}
}
