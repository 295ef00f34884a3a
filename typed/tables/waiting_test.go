package tables_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed/tables"
)

// blind is a backend whose watches end at once after their snapshot while it is shut, and cannot be opened then.
type blind struct {
	storage.Backend
	shut    atomic.Bool
	ended   chan struct{} // is sent to when a watch was to be opened in vain
	refused chan struct{} // is sent to when a write was refused
}

func (b *blind) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	stored, err := b.Backend.WriteCAS(ctx, res)
	if errors.Is(err, storage.ErrCASFailure) {
		b.refused <- struct{}{}
	}
	return stored, err
}

func (b *blind) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if ok {
		*transactor, ok = storage.As[storage.Transactor](b.Backend)
	}
	return ok
}

func (b *blind) WatchList(
	ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string,
) (storage.Watch, error) {
	if b.shut.Load() {
		select {
		case b.ended <- struct{}{}:
		default:
		}
		return nil, storage.ErrInconsistent
	}
	w, err := b.Backend.WatchList(ctx, typ, tenancy, prefix)
	if err != nil {
		return nil, err
	}
	return &blindWatch{Watch: w, Bookmarker: w.(storage.Bookmarker), b: b}, nil
}

type blindWatch struct {
	storage.Watch
	storage.Bookmarker
	b *blind
}

func (w *blindWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	ev, err := w.Watch.Next(ctx)
	if w.b.shut.Load() {
		return nil, storage.ErrWatchClosed
	}
	return ev, err
}

// While there is no watch, an Update that was refused waits: until its context ends, with an error that says both, until there is a watch
// again, or until the store is closed, as a Linearizable View does.
func TestWaitingWithoutAWatch(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		outside := fixture.Open(t, url)
		b := &blind{Backend: fixture.Open(t, url), ended: make(chan struct{}, 1), refused: make(chan struct{}, 10)}
		s, err := tables.Open(ctx, b, numbers)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		create(ctx, t, s, map[string]int64{"a": 1})
		behind := func(value int64) { // has the copy miss a change
			t.Helper()
			b.shut.Store(true)
			res := fixture.Stored(t, outside, id("a"))
			if res.Data, err = anypb.New(wrapperspb.Int64(value)); err != nil {
				t.Fatal(err)
			}
			fixture.Write(t, outside, res)
			<-b.ended
		}
		increase := func(ctx context.Context) error {
			return s.Update(ctx, func(tx *tables.Tx) error {
				o, err := numbers.Edit(tx, id("a"))
				if err != nil {
					return err
				}
				o.Data.Value++
				return numbers.Put(tx, o)
			})
		}
		behind(10)
		over, cancel := context.WithCancel(ctx)
		waiting := make(chan error, 1)
		go func() { waiting <- increase(over) }()
		<-b.refused
		cancel()
		if err := <-waiting; !errors.Is(err, context.Canceled) || !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("the context ended: %v", err)
		}
		go func() { waiting <- increase(ctx) }()
		<-b.refused
		b.shut.Store(false)
		if err := <-waiting; err != nil {
			t.Error(err)
		}
		if err := s.View(ctx, func(v *tables.View) error {
			if names := show(t, v, byValue.Is(11)); names != "a" {
				t.Errorf("%q is 11", names)
			}
			return nil
		}, tables.Linearizable); err != nil {
			t.Fatal(err)
		}
		behind(20)
		go func() { waiting <- increase(ctx) }()
		viewing := make(chan error, 1)
		go func() { viewing <- s.View(ctx, func(*tables.View) error { return nil }, tables.Linearizable) }()
		<-b.refused
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		for _, ended := range []chan error{waiting, viewing} {
			if err := <-ended; !errors.Is(err, storage.ErrClosed) {
				t.Errorf("the store was closed: %v", err)
			}
		}
	})
}
