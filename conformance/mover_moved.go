package conformance

import (
	"context"
	"errors"
	"slices"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// movedStore records that a store has moved. Writes, strong reads, lists, pages and new watches fail with an error that names the other store,
// through both handles. Eventual reads, and strong ones of a tool that asks for it, return the last state.
// Watches that were open return every change before they end with this error.
func movedStore(s *suite) {
	one, other := movables(s)
	ctx := s.ctx
	tool := extension[driver.GuardedMover](s, one.Backend)
	there := must[*resourcepb.Resource](s)(other.WriteCAS(ctx, thingNamed("there")))
	var watches []storage.Watch
	for _, b := range []movable{one, other} {
		w := must[storage.Watch](s)(b.WatchList(ctx, anything, anywhere, ""))
		defer w.Close()
		watches = append(watches, w)
	}
	must[*resourcepb.Resource](s)(other.WriteCAS(ctx, thingNamed("last")))
	var page storage.Page // the first one of a listing that was begun before the move
	if pager, ok := storage.As[storage.Pager](one.Backend); ok {
		page = must[storage.Page](s)(pager.ListPage(ctx, anything, anywhere, "", storage.ListOptions{Consistency: strong, Limit: 1}))
	}
	stillReads := func(state string) {
		s.Helper()
		for name, b := range map[string]movable{"the tool's handle": one, "the other handle": other} {
			for op, err := range strongReads(ctx, b.Backend, there, page.Continue) {
				s.noError(name+", "+op+" of "+state+" store", err)
			}
		}
	}
	stillReads("an open")
	closed := driver.Fence{Target: "mem://there"}
	epoch := must[string](s)(tool.SetFenceAt(ctx, &closed, must[driver.FenceState](s)(tool.Fence(ctx)).Epoch))
	stillReads("a closed")
	fence := driver.Fence{Target: "mem://there", Moved: true, Identity: "id", Cursor: "a cursor"}
	must[string](s)(tool.SetFenceAt(ctx, &fence, epoch))
	fence.Cursor = "changed by the caller" // the driver must not keep the pointer

	wrong := false
	names := func(what string, err error, cursors ...string) {
		s.Helper()
		move := (*storage.MovedError)(nil)
		if !errors.As(err, &move) || move.Target != "mem://there" || move.Identity != "id" || !slices.Contains(append(cursors, "a cursor"), move.Cursor) ||
			!errors.Is(err, storage.ErrMoved) || !errors.Is(err, storage.ErrFenced) {
			wrong = true
			s.Errorf("%s: got %v, expected a MovedError with the target", what, err)
		}
	}
	for name, b := range map[string]movable{"the tool's handle": one, "the other handle": other} {
		for op, err := range refusals(ctx, b.Backend, there) {
			names(name+", "+op, err)
		}
		for op, err := range strongReads(ctx, b.Backend, there, page.Continue) {
			names(name+", "+op, err)
		}
		for op, err := range strongReads(driver.WithMovedReads(ctx), b.Backend, there, page.Continue) {
			s.noError(name+", "+op+" of a tool", err)
		}
		read, err := b.Read(ctx, storage.EventualConsistency, there.GetId())
		s.noError(name+", an eventual read", err)
		s.equal(name+", an eventual read", read, there)
		if listed := must[[]*resourcepb.Resource](s)(b.List(ctx, storage.EventualConsistency, anything, anywhere, "")); len(listed) != 2 {
			s.Errorf("%s: an eventual list has %d resources, expected 2", name, len(listed))
		}
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
			if _, proves := w.(storage.Bookmarker); proves {
				names("a watch", err)
			} else {
				names("a watch", err, "") // it may be unable to prove that it has returned every change
			}
			if !errors.Is(err, storage.ErrWatchClosed) || seen != " there  last" {
				s.Errorf("a watch returned%q, and ended with %v", seen, err)
			}
			break
		}
	}
	s.noError("SetFence", other.SetFence(ctx, nil))
	must[*resourcepb.Resource](s)(other.WriteCAS(ctx, thingNamed("new")))
}

// strongReads makes every strong read of a store with a resource, and returns the errors. The token continues a listing; it may be "".
func strongReads(ctx context.Context, b storage.Backend, there *resourcepb.Resource, token string) map[string]error {
	none := storage.UnversionedType{Group: "none", Kind: "None"}
	_, read := b.Read(ctx, strong, there.GetId())
	_, absent := b.Read(ctx, strong, thingNamed("absent").GetId())
	_, list := b.List(ctx, strong, anything, anywhere, "")
	_, exact := b.List(ctx, strong, storage.UnversionedTypeFrom(there.GetId().GetType()), there.GetId().GetTenancy(), "")
	_, empty := b.List(ctx, strong, none, anywhere, "")
	tried := map[string]error{"a read": read, "a read of an absent resource": absent, "a list": list, "a list of a tenancy": exact, "an empty list": empty}
	if p, ok := storage.As[storage.Pager](b); ok {
		_, tried["a page"] = p.ListPage(ctx, anything, anywhere, "", storage.ListOptions{Consistency: strong})
		_, tried["an empty page"] = p.ListPage(ctx, none, anywhere, "", storage.ListOptions{Consistency: strong})
		if token != "" {
			_, tried["a later page"] = p.ListPage(ctx, anything, anywhere, "", storage.ListOptions{Consistency: strong, Continue: token})
		}
	}
	if h, ok := storage.As[history.Historian](b); ok {
		_, tried["a scan"] = h.Scan(ctx, history.Range{}, history.ScanOptions{})
		_, tried["a scan of a key"] = h.Scan(ctx, history.Range{From: there.GetId(), To: nextKey(there.GetId())}, history.ScanOptions{})
	}
	for what, err := range tried {
		if errors.Is(err, storage.ErrNotFound) {
			tried[what] = nil
		}
	}
	return tried
}
