package servicetest

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage/resourcepb"
)

func seconds(n int64) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Second) }

// A watching is an open stream, read all the time.
type watching struct {
	s      *suite
	events chan received
	cancel context.CancelFunc
}

// received is what a stream came up with.
type received struct {
	event *resourcepb.WatchEvent
	err   error
}

// watch opens a stream, which ends with the case.
func (s *suite) watch(req *resourcepb.WatchListRequest) *watching {
	s.Helper()
	return s.watchAs(s.ctx, req)
}

// watchAs is watch with the context of another caller.
func (s *suite) watchAs(ctx context.Context, req *resourcepb.WatchListRequest) *watching {
	s.Helper()
	ctx, cancel := context.WithCancel(ctx)
	stream, err := s.WatchList(ctx, req)
	if err != nil {
		cancel()
		s.Fatalf("WatchList of %s: %v", text(req), err)
	}
	w := &watching{s: s, events: make(chan received), cancel: cancel}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			ev, err := stream.Recv()
			select {
			case w.events <- received{ev, err}:
			case <-ctx.Done():
			}
			if err != nil {
				return
			}
		}
	}()
	s.Cleanup(func() { cancel(); <-ended })
	return w
}

// next is the next event, which has to come.
func (w *watching) next() *resourcepb.WatchEvent {
	w.s.Helper()
	ev, err := w.receive()
	if err != nil {
		w.s.Fatalf("the stream ended: %v", err)
	}
	return ev
}

func (w *watching) receive() (*resourcepb.WatchEvent, error) {
	w.s.Helper()
	timer := time.NewTimer(w.s.h.Patience)
	defer timer.Stop()
	select {
	case r := <-w.events:
		return r.event, r.err
	case <-timer.C:
		w.s.Fatalf("no event within %v", w.s.h.Patience)
		return nil, nil
	}
}

// ends demands that the stream ends with that code, before another event.
func (w *watching) ends(what string, code codes.Code) {
	w.s.Helper()
	ev, err := w.receive()
	if err == nil {
		w.s.Fatalf("%s: an event instead of an end: %s", what, text(ev))
	}
	w.s.fails(what, err, code, ".")
}

// snapshot returns what comes until the end of the snapshot.
func (w *watching) snapshot() (all []*resourcepb.Resource) {
	w.s.Helper()
	for {
		ev := w.next()
		if ev.GetEndOfSnapshot() != nil {
			return all
		}
		if ev.GetUpsert() == nil {
			w.s.Fatalf("a snapshot has the event %s", text(ev))
		}
		all = append(all, ev.GetUpsert().GetResource())
	}
}

// upsert demands that the next event is the write of a resource of that name.
func (w *watching) upsert(name string) *resourcepb.Resource {
	w.s.Helper()
	ev := w.next()
	if ev.GetUpsert().GetResource().GetId().GetName() != name {
		w.s.Fatalf("the next event should be a write of %s, and is %s", name, text(ev))
	}
	return ev.GetUpsert().GetResource()
}

// deleted demands that the next event is the deletion of a resource of that name.
func (w *watching) deleted(name string) *resourcepb.Resource {
	w.s.Helper()
	ev := w.next()
	if ev.GetDelete().GetResource().GetId().GetName() != name {
		w.s.Fatalf("the next event should be the deletion of %s, and is %s", name, text(ev))
	}
	return ev.GetDelete().GetResource()
}
