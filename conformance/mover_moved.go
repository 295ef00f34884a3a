package conformance

import (
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// movedStore records that a store has moved. Writes and new watches fail with an error that names the other store, through both handles.
// Watches that were open, and resumed ones, return every change before they end with this error, if they have bookmarks.
func movedStore(s *suite) {
	one, other := movables(s)
	ctx := s.ctx
	tool := extension[driver.GuardedMover](s, one.Backend)
	there := must[*resourcepb.Resource](s)(other.WriteCAS(ctx, thingNamed("there")))
	var watches []storage.Watch
	for _, b := range []movable{one, other} {
		w := must[storage.Watch](s)(b.WatchList(ctx, anything, anywhere, ""))
		defer w.Close()
		if _, proves := w.(storage.Bookmarker); proves {
			watches = append(watches, w)
		}
	}
	must[*resourcepb.Resource](s)(other.WriteCAS(ctx, thingNamed("last")))
	closed := driver.Fence{Target: "mem://there"}
	epoch := must[string](s)(tool.SetFenceAt(ctx, &closed, must[driver.FenceState](s)(tool.Fence(ctx)).Epoch))
	fence := driver.Fence{Target: "mem://there", Moved: true, Identity: "id", Cursor: "a cursor"}
	must[string](s)(tool.SetFenceAt(ctx, &fence, epoch))
	fence.Cursor = "changed by the caller" // the driver must not keep the pointer

	wrong := false
	names := func(what string, err error) {
		s.Helper()
		move := (*storage.MovedError)(nil)
		if !errors.As(err, &move) || *move != (storage.MovedError{Target: "mem://there", Identity: "id", Cursor: "a cursor"}) ||
			!errors.Is(err, storage.ErrMoved) || !errors.Is(err, storage.ErrFenced) {
			wrong = true
			s.Errorf("%s: got %v, expected a MovedError with the target", what, err)
		}
	}
	for name, b := range map[string]movable{"the tool's handle": one, "the other handle": other} {
		for op, err := range refusals(ctx, b.Backend, there) {
			names(name+", "+op, err)
		}
		_, err := b.WatchList(ctx, anything, anywhere, "")
		names(name+", a new watch", err)
	}
	if wrong {
		return // the watches may never end
	}
	for _, w := range watches {
		seen := ""
		for {
			ev, err := w.Next(ctx)
			if err == nil {
				seen += " " + ev.GetUpsert().GetResource().GetId().GetName()
				continue
			}
			names("a watch", err)
			if !errors.Is(err, storage.ErrWatchClosed) || seen != " there  last" {
				s.Errorf("a watch returned%q, and ended with %v", seen, err)
			}
			break
		}
	}
	s.noError("SetFence", other.SetFence(ctx, nil))
	must[*resourcepb.Resource](s)(other.WriteCAS(ctx, thingNamed("new")))
}
