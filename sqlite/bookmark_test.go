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

// A bookmark waits for what somebody has written who died before it rang.
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
			t.Fatalf("%v, expected what was written before the bookmark was asked for", ev)
		}
		if ev := fixture.Next(t, w); ev.GetBookmark() == nil {
			t.Fatalf("%v, expected a bookmark", ev)
		}
	}
}

// An older copy of the database under a running watch proves nothing about what the watch has shown.
func TestNoBookmarkOfReplacedHistory(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"shorter": "DELETE FROM log WHERE seq > 1",
		"empty":   "DELETE FROM log",
		"other":   "UPDATE log SET tag = tag + 1",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 20 {
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
					t.Fatalf("%v, %v; expected ErrCompacted", ev, err)
				}
			}
		})
	}
}

// Writes that share a transaction of the file become visible at once, so they are one commit, whoever made them; writes that
// do not are not.
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
	fixture.Eventually(t, "all stand in line", func() bool {
		s.handle.writer.queue.mu.Lock()
		defer s.handle.writer.queue.mu.Unlock()
		return len(s.handle.writer.queue.waiting) == n
	})

	unlockFile(t, file)
	writers.Wait()
	for i := range n {
		if ev := fixture.Next(t, w); ev.GetMore() != (i < n-1) {
			t.Errorf("event %d of %d has more %v", i, n, ev.GetMore())
		}
	}
	for i := range 3 {
		fixture.Write(t, s, resource(fmt.Sprint("alone-", i), 1))
		if ev := fixture.Next(t, w); ev.GetMore() {
			t.Errorf("%v is alone", ev)
		}
	}
}

// A page that ends inside a transaction says so, by its last row, whether the filter wants that or not.
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
						t.Fatalf("limit %d: row %d in the middle of a page is cut", limit, ev.At.seq)
					}
					if f != nil && !f.Match(&ev.Key) && !ev.CommitContinues {
						t.Fatalf("limit %d: row %d is not wanted", limit, ev.At.seq)
					}
				}
				if cut != !isEnd[int(end.seq)] {
					t.Errorf("limit %d: a page that ends at row %d says that it is cut: %v", limit, end.seq, cut)
				}
				if at = end; !more {
					break
				}
			}
		}
	}
}
