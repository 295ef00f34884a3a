package servicetest

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/ashlar-dev/storage/resourcepb"
)

func seconds(n int64) *durationpb.Duration { return durationpb.New(time.Duration(n) * time.Second) }

// watching is an open stream that is read continuously.
type watching struct {
	s      *suite
	events chan received
	cancel context.CancelFunc
}

// received is a result of the stream.
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

// next returns the next event, and fails the case if none arrives.
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
	timer := time.NewTimer(w.s.h.Timeout)
	defer timer.Stop()
	select {
	case r := <-w.events:
		return r.event, r.err
	case <-timer.C:
		w.s.Fatalf("no event within %v", w.s.h.Timeout)
		return nil, nil
	}
}

// ends checks that the stream ends with a code before another event.
func (w *watching) ends(what string, code codes.Code) {
	w.s.Helper()
	ev, err := w.receive()
	if err == nil {
		w.s.Fatalf("%s: an event instead of an end: %s", what, text(ev))
	}
	w.s.fails(what, err, code, ".")
}

// snapshot returns the events up to the end of the snapshot.
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

// upsert checks that the next event is the write of the named resource.
func (w *watching) upsert(name string) *resourcepb.Resource {
	w.s.Helper()
	ev := w.next()
	if ev.GetUpsert().GetResource().GetId().GetName() != name {
		w.s.Fatalf("the next event should be a write of %s, and is %s", name, text(ev))
	}
	return ev.GetUpsert().GetResource()
}

// deleted checks that the next event is the deletion of the named resource.
func (w *watching) deleted(name string) *resourcepb.Resource {
	w.s.Helper()
	ev := w.next()
	if ev.GetDelete().GetResource().GetId().GetName() != name {
		w.s.Fatalf("the next event should be the deletion of %s, and is %s", name, text(ev))
	}
	return ev.GetDelete().GetResource()
}
