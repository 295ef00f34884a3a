package sqlite

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

func requestBookmark(t testing.TB, w storage.Watch) {
	t.Helper()
	if err := w.(storage.Bookmarker).Bookmark(t.Context()); err != nil {
		t.Fatalf("Bookmark: %v", err)
	}
}

// A bookmark waits for the rows of a writer that died before its notification.
func TestBookmarkWithoutNotification(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	w := fixture.WatchChanges(t, s)
	a := fixture.Write(t, s, resource("a", 1))
	wantUpsert(t, w, a)
	stranger := openDirect(t, s.Path())
	for seq := 2; seq < 10; seq++ {
		execSQL(t, stranger, fmt.Sprintf("INSERT INTO log (seq, tag, written, key, data) SELECT %d, 1000 + %d, written, key, data FROM log WHERE seq = 1", seq, seq))
		requestBookmark(t, w)
		if ev := fixture.Next(t, w); ev.GetUpsert() == nil {
			t.Fatalf("got event %v, expected the row written before the bookmark request", ev)
		}
		if ev := fixture.Next(t, w); ev.GetBookmark() == nil {
			t.Fatalf("got event %v, expected a bookmark", ev)
		}
	}
}

// A watch returns no bookmark after an older copy of the database replaced the file under it.
func TestNoBookmarkOfReplacedHistory(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"shorter": "DELETE FROM log WHERE seq > 1",
		"empty":   "DELETE FROM log",
		"other":   "UPDATE log SET tag = tag + 1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 5 {
				s := open(t, newPath(t), nil)
				w := fixture.WatchChanges(t, s)
				for range 2 {
					wantUpsert(t, w, fixture.Write(t, s, resource(fmt.Sprint(len(names(t, s))), 1)))
				}
				execSQL(t, openDirect(t, s.Path()), sql)
				if err := w.(storage.Bookmarker).Bookmark(t.Context()); err != nil && !errors.Is(err, storage.ErrCompacted) {
					t.Fatalf("Bookmark: %v", err)
				}
				if ev, err := nextError(t, w); !errors.Is(err, storage.ErrCompacted) {
					t.Fatalf("got event %v, error %v; expected ErrCompacted", ev, err)
				}
			}
		})
	}
}

// Writes in one transaction of the file are one commit for watches, even if different callers made them. Writes in
// separate transactions are not.
func TestMoreOfGroupCommit(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	w := fixture.WatchChanges(t, s)
	const n = 20
	var writers sync.WaitGroup
	file := lockAsOtherProcess(t, s)
	for i := range n {
		writers.Go(func() {
			if _, err := s.WriteCAS(t.Context(), resource(fmt.Sprint("together-", i), 1)); err != nil {
				t.Error(err)
			}
		})
	}
	fixture.Eventually(t, "all requests are in the queue", func() bool {
		s.handle.writer.queue.mu.Lock()
		defer s.handle.writer.queue.mu.Unlock()
		return len(s.handle.writer.queue.waiting) == n
	})

	unlockFile(t, file)
	writers.Wait()
	for i := range n {
		if ev := fixture.Next(t, w); ev.GetMore() != (i < n-1) {
			t.Errorf("event %d of %d: more is %v", i, n, ev.GetMore())
		}
	}
	for i := range 3 {
		fixture.Write(t, s, resource(fmt.Sprint("alone-", i), 1))
		if ev := fixture.Next(t, w); ev.GetMore() {
			t.Errorf("%v has more set, but its commit has one event", ev)
		}
	}
}

// A page that ends inside a transaction marks its last row, even if the filter rejects that row.
func TestPagesCutCommits(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	var ends []int // the rows at which commits end
	for i, size := range []int{1, 4, 1, 1, 5, 2} {
		var ops []storage.Op
		for j := range size {
			ops = append(ops, storage.Op{Write: resource(fmt.Sprintf("%c-%d", "ab"[(i+j)%2], 10*i+j), 1)})
		}
		if _, err := s.Commit(t.Context(), ops); err != nil {
			t.Fatal(err)
		}
		last := size
		if len(ends) > 0 {
			last += ends[len(ends)-1]
		}
		ends = append(ends, last)
	}
	total := ends[len(ends)-1]
	isEnd := make(map[int]bool)
	for _, end := range ends {
		isEnd[end] = true
	}
	c, err := s.handle.readers.take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.handle.readers.give(c)
	for _, f := range []*key.Filter{nil, {Group: "*", Kind: "*", Partition: "*", Namespace: "*", NamePrefix: "a"}} {
		for limit := 1; limit <= total; limit++ {
			for at := (position{}); ; {
				events, end, more, err := c.history(at, f, limit)
				if err != nil {
					t.Fatal(err)
				}
				cut := false
				for i, ev := range events {
					cut = ev.CommitContinues
					if ev.CommitContinues && i < len(events)-1 {
						t.Fatalf("limit %d: row %d has CommitContinues set in the middle of a page", limit, ev.At.seq)
					}
					if f != nil && !f.Match(&ev.Key) && !ev.CommitContinues {
						t.Fatalf("limit %d: row %d does not match the filter", limit, ev.At.seq)
					}
				}
				if cut != !isEnd[int(end.seq)] {
					t.Errorf("limit %d: CommitContinues at the end of the page at row %d is %v", limit, end.seq, cut)
				}
				if at = end; !more {
					break
				}
			}
		}
	}
}
