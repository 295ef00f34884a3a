package tables_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed/tables"
)

// changesOf reads events and returns them as texts: "+a 1", "a 1 2" and "-a 2". An event whose commit continues has the suffix "…".
func changesOf(ctx context.Context, t *testing.T, w *tables.Watch, count int) (texts, cursors []string) {
	t.Helper()
	for range count {
		ev, err := w.Next(ctx)
		if err != nil {
			t.Fatalf("after %q: %v", texts, err)
		}
		c, ok := numbers.Event(ev)
		text := "?"
		switch {
		case ok && c.Old == nil:
			text = fmt.Sprint("+", c.New.ID.Name, " ", c.New.Data.Value)
		case ok && c.New == nil:
			text = fmt.Sprint("-", c.Old.ID.Name, " ", c.Old.Data.Value)
		case ok:
			text = fmt.Sprint(c.New.ID.Name, " ", c.Old.Data.Value, " ", c.New.Data.Value)
		}
		if ev.More {
			text += "…"
		}
		texts, cursors = append(texts, text), append(cursors, ev.Cursor)
	}
	return texts, cursors
}

// change creates, updates and deletes numbers.
func change(ctx context.Context, t *testing.T, s *tables.Store) {
	t.Helper()
	set := func(tx *tables.Tx, name string, value int64) error {
		o, err := numbers.Edit(tx, id(name))
		if errors.Is(err, storage.ErrNotFound) {
			return numbers.Put(tx, put(name, value))
		}
		if err != nil {
			return err
		}
		o.Data.Value = value
		return numbers.Put(tx, o)
	}
	update(ctx, t, s, func(tx *tables.Tx) error { return set(tx, "a", 1) })
	update(ctx, t, s, func(tx *tables.Tx) error { return set(tx, "a", 2) })
	update(ctx, t, s, func(tx *tables.Tx) error { return errors.Join(set(tx, "a", 3), set(tx, "b", 3)) })
	update(ctx, t, s, func(tx *tables.Tx) error { return numbers.Delete(tx, id("a")) })
	update(ctx, t, s, func(tx *tables.Tx) error { return set(tx, "b", 5) })
}

// A watch continues at the cursor of an event, in another store. It returns the same events, by the same filters.
func TestWatchFrom(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		w, err := s.ViewAndWatch(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		change(ctx, t, s)
		texts, cursors := changesOf(ctx, t, w, 6)
		other := open(t, url, numbers, books)
		for _, n := range []int{0, 1, 3, 4} { // 2 may be in the middle of a commit
			on, err := other.WatchFrom(ctx, cursors[n])
			if err != nil {
				t.Fatal(err)
			}
			if rest, more := changesOf(ctx, t, on, 5-n); !slices.Equal(rest, texts[n+1:]) || !slices.Equal(more, cursors[n+1:]) {
				t.Errorf("after event %d of %q: %q", n, texts, rest)
			}
			on.Close()
			if _, err := on.Next(ctx); !errors.Is(err, storage.ErrWatchClosed) {
				t.Errorf("after Close: %v, expected ErrWatchClosed", err)
			}
		}
		on, err := other.WatchFrom(ctx, cursors[0], numbers.Where(byValue.Is(3)))
		if err != nil {
			t.Fatal(err)
		}
		if rest, _ := changesOf(ctx, t, on, 3); len(rest) != 3 || rest[2] != "b 3 5" && rest[2] != "-a 3" {
			t.Errorf("the filtered events are %q", rest)
		}
		if _, err := other.WatchFrom(ctx, "garbage"); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("a damaged cursor: %v, expected ErrInvalid", err)
		}
		b := fixture.Open(t, url)
		historian, _ := storage.As[history.Historian](b)
		_, newest, err := historian.Revisions(ctx)
		if err == nil {
			err = historian.Compact(ctx, newest)
		}
		if err != nil {
			t.Fatal(err)
		}
		compacted := open(t, url, numbers) // a handle without the changes in memory
		late, err := compacted.WatchFrom(ctx, cursors[0])
		if err == nil {
			_, err = late.Next(ctx)
		}
		if !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("a compacted cursor: %v, expected ErrCompacted", err)
		}
		if err := other.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := on.Next(ctx); !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrClosed) {
			t.Errorf("after Close of the store: %v, expected ErrWatchClosed and ErrClosed", err)
		}
	})
}

// A filter selects changes by their action.
func TestWatchActions(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		for _, one := range []struct {
			filters []tables.Filter
			want    []string
		}{
			{[]tables.Filter{numbers.Where().On(tables.Created)}, []string{"+a 1", "+b 3"}},
			{[]tables.Filter{numbers.Where().On(tables.Deleted)}, []string{"-a 3"}},
			{[]tables.Filter{numbers.Where().On(tables.Created, tables.Deleted)}, []string{"+a 1", "+b 3", "-a 3"}},
			{[]tables.Filter{numbers.Where(byValue.Is(2)).On(tables.Updated)}, []string{"a 1 2", "a 2 3"}},
			{[]tables.Filter{numbers.Where(byValue.Is(5)).On(tables.Updated), numbers.Where().On(tables.Deleted)}, []string{"-a 3", "b 3 5"}},
		} {
			w, err := s.ViewAndWatch(ctx, nil, one.filters...)
			if err != nil {
				t.Fatal(err)
			}
			change(ctx, t, s)
			if got, _ := changesOf(ctx, t, w, len(one.want)); !slices.Equal(got, one.want) {
				t.Errorf("the events are %q, expected %q", got, one.want)
			}
			w.Close()
			update(ctx, t, s, func(tx *tables.Tx) error { return numbers.Delete(tx, id("b")) })
		}
	})
}

// announcedReads is a backend whose resumed watches announce each call of Next.
type announcedReads struct {
	storage.Backend
	reading chan struct{}
}

func (b *announcedReads) As(target any) (ok bool) {
	switch target := target.(type) {
	case *storage.Transactor:
		*target, ok = storage.As[storage.Transactor](b.Backend)
	case *storage.Resumer:
		var inner storage.Resumer
		inner, ok = storage.As[storage.Resumer](b.Backend)
		*target = &announcedResumer{inner, b.reading}
	}
	return ok
}

type announcedResumer struct {
	storage.Resumer
	reading chan struct{}
}

func (r *announcedResumer) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix, cursor string) (
	storage.Watch, error,
) {
	w, err := r.Resumer.WatchFrom(ctx, typ, tenancy, prefix, cursor)
	return &announcedWatch{w, r.reading}, err
}

type announcedWatch struct {
	storage.Watch
	reading chan struct{}
}

func (w *announcedWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	w.reading <- struct{}{}
	return w.Watch.Next(ctx)
}

// Close of the store ends a waiting watch of WatchFrom.
func TestCloseEndsWatchFrom(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		b := &announcedReads{fixture.Open(t, url), make(chan struct{})}
		s, err := tables.Open(ctx, b, numbers)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		w, err := s.ViewAndWatch(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		create(ctx, t, s, map[string]int64{"a": 1})
		ev, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		from, err := s.WatchFrom(ctx, ev.Cursor)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := from.Next(ctx)
			ended <- err
		}()
		<-b.reading
		s.Close()
		if err := <-ended; !errors.Is(err, storage.ErrWatchClosed) {
			t.Errorf("Next after Close: got error %v, expected ErrWatchClosed", err)
		}
	})
}
