package etcdserver

import (
	"context"
	"errors"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
)

// watch is one watch of a stream.
type watch struct {
	stream  *watchStream
	request *pb.WatchCreateRequest
	id      int64
	cancel  context.CancelFunc

	previous *watch        // of the same number, cancelled before this one was asked for; nil if there is none
	finishCh chan struct{} // closed when nothing more is sent

	// Both belong to the stream's lock.
	follower     history.Follower // nil until it is there
	sentRevision int64            // everything up to this revision has been sent
}

// reject answers the request with a reason, in its turn.
func (w *watch) reject(before <-chan struct{}, answered chan<- struct{}, reason string) {
	defer close(answered)
	<-before
	_, newest, err := w.stream.server.history.Revisions(w.stream.to.Context())
	if err != nil {
		newest = 0
	}
	w.stream.send(&pb.WatchResponse{Header: header(newest), WatchId: noWatch, Created: true, Canceled: true, CancelReason: reason})
}

// run opens the watch, says so after the watch before, and sends what changes until the watch ends. Also one that is cancelled before it is
// open is said to be created: clients tell by the order of these answers which request they belong to.
func (w *watch) run(stream, ctx context.Context, before <-chan struct{}, answered chan<- struct{}) error {
	if len(w.request.Key) == 0 {
		w.request.Key = []byte{1} // before every key
	}
	follower, from, newest, err := w.open(stream, ctx)
	<-before
	if w.previous != nil {
		<-w.previous.finishCh
		w.previous = nil
	}
	if newest > 0 {
		w.stream.send(&pb.WatchResponse{Header: header(newest), WatchId: w.id, Created: true})
	}
	close(answered)
	if err != nil {
		return err
	}
	defer follower.Close()
	w.stream.mu.Lock()
	w.follower, w.sentRevision = follower, min(from-1, newest)
	asked := len(w.stream.progressRevisions) > 0
	w.stream.mu.Unlock()
	if asked {
		_ = follower.Bookmark(ctx) // one that has ended says so in Next
	}
	return w.follow(ctx, follower, from)
}

// end says why the watch has ended, unless all of the stream has.
func (w *watch) end(stream, ctx context.Context, err error) {
	last := &pb.WatchResponse{WatchId: w.id, Canceled: true}
	oldest, newest, revisionsErr := w.stream.server.history.Revisions(stream)
	switch {
	case stream.Err() != nil:
		return
	case ctx.Err() != nil: // cancelled by its client
	case errors.Is(err, storage.ErrCompacted):
		last.CompactRevision = max(oldest, firstRevision)
		last.CancelReason = rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted)
	default:
		w.stream.stop(toStatus(ctx, err)) // the client opens another stream, and goes on from where it was
		return
	}
	if revisionsErr == nil {
		last.Header = header(newest)
	} else {
		last.Header = header(0)
	}
	w.stream.sendEnd(w, last)
}

// open begins to follow what the request asks for, from a revision on.
func (w *watch) open(stream, ctx context.Context) (follower history.Follower, from, newest int64, err error) {
	for {
		follower, from, newest, err = w.openOnce(stream, ctx)
		if !errors.Is(err, storage.ErrCompacted) || from <= newest || ctx.Err() != nil {
			return follower, from, newest, err
		}
		// It wants nothing of what is compacted: that was the newest revision when it began.
	}
}

func (w *watch) openOnce(stream, ctx context.Context) (follower history.Follower, from, newest int64, err error) {
	s := w.stream.server
	oldest, newest, err := s.history.Revisions(stream)
	if err != nil {
		return nil, 0, 0, err
	}
	if from = w.request.StartRevision; from <= 0 {
		from = newest + 1
	}
	span, ok := requestRange(w.request.Key, w.request.RangeEnd)
	if !ok {
		span = history.Span{From: afterAllKeys, To: afterAllKeys} // nothing is ever stored there
	}
	after := min(from-1, newest)
	if oldest == firstRevision {
		after = max(after, oldest) // nothing was compacted: there is no change before
	}
	if after < oldest {
		return nil, from, newest, storage.ErrCompacted
	}
	follower, err = s.history.Follow(ctx, span, after)
	return follower, from, newest, err
}

// follow sends changes until there are none to come.
func (w *watch) follow(ctx context.Context, follower history.Follower, from int64) error {
	interval := w.stream.server.opts.ProgressInterval
	var notice *time.Timer
	due := make(chan struct{}, 1)
	if w.request.ProgressNotify {
		notice = time.AfterFunc(interval, func() {
			select {
			case due <- struct{}{}:
			default:
			}
			_ = follower.Bookmark(ctx) // a follower that has ended says so in Next
		})
		defer notice.Stop()
	}
	for {
		changes, revision, err := follower.Next(ctx)
		if err != nil {
			return err
		}
		events := w.events(changes, from)
		if !w.sendEvents(events, revision) {
			return context.Cause(ctx)
		}
		w.advance(revision)
		if notice == nil {
			continue
		}
		select {
		case <-due:
			if len(events) == 0 && revision >= from-1 && !w.stream.send(&pb.WatchResponse{Header: header(revision), WatchId: w.id}) {
				return context.Cause(ctx)
			}
			notice.Reset(interval)
		default:
			if len(events) > 0 {
				notice.Reset(interval)
			}
		}
	}
}

// advance notes that everything up to a revision has been sent.
func (w *watch) advance(revision int64) {
	w.stream.mu.Lock()
	w.sentRevision = max(w.sentRevision, revision)
	asked := len(w.stream.progressRevisions) > 0
	w.stream.mu.Unlock()
	if asked {
		w.stream.sendProgress()
	}
}

// events returns those changes from a revision on that the request asks for.
func (w *watch) events(changes []history.Change, from int64) []*mvccpb.Event {
	events := make([]*mvccpb.Event, 0, len(changes))
	for i := range changes {
		c := &changes[i]
		filter := pb.WatchCreateRequest_NOPUT
		if c.Now == nil {
			filter = pb.WatchCreateRequest_NODELETE
		}
		if c.Revision < from || slices.Contains(w.request.Filters, filter) {
			continue
		}
		ev := &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: pair(c.Now)}
		if c.Now == nil {
			ev.Type = mvccpb.Event_DELETE
			ev.Kv = &mvccpb.KeyValue{Key: keyOf(c.Before.Resource.GetId()), ModRevision: c.Revision}
		}
		if w.request.PrevKv {
			ev.PrevKv = pair(c.Before)
		}
		events = append(events, ev)
	}
	return events
}

// fragmentSize is the size from which on an answer is cut into several, where the request allows it.
const fragmentSize = 3 << 19

// sendEvents sends the events of whole commits, in one answer unless they may be cut. Nothing comes between the fragments of an answer:
// etcd's client puts together what comes until the last one.
func (w *watch) sendEvents(events []*mvccpb.Event, revision int64) bool {
	w.stream.sendMu.Lock()
	defer w.stream.sendMu.Unlock()
	for len(events) > 0 {
		n := len(events)
		if w.request.Fragment {
			n = 0
			for size := 0; n < len(events); n++ {
				if size += proto.Size(events[n]); n > 0 && size > fragmentSize {
					break
				}
			}
		}
		part := &pb.WatchResponse{Header: header(revision), WatchId: w.id, Events: events[:n], Fragment: n < len(events)}
		if !w.stream.sendLocked(part) {
			return false
		}
		events = events[n:]
	}
	return true
}
