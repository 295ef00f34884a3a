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

// reject answers the request with a reason, after the answers to earlier requests.
func (w *watch) reject(stream context.Context, before <-chan struct{}, answered chan<- struct{}, reason string) {
	defer w.stream.answered(answered)
	<-before
	if stream.Err() != nil {
		return // an earlier request has no answer
	}
	_, newest, err := w.stream.server.history.Revisions(w.stream.to.Context())
	if err != nil {
		newest = 0
	}
	w.stream.send(&pb.WatchResponse{Header: header(newest), WatchId: noWatch, Created: true, Canceled: true, CancelReason: reason})
}

// run opens the watch, announces it after the previous watch, and sends changes until the watch ends. A watch that is cancelled before it
// is open is announced as well: clients match these responses to their requests by their order.
func (w *watch) run(stream, ctx context.Context, before <-chan struct{}, answered chan<- struct{}) error {
	if len(w.request.Key) == 0 {
		w.request.Key = []byte{0} // before every key
	}
	follower, from, newest, err := w.open(stream, ctx)
	<-before
	if w.previous != nil {
		<-w.previous.finishCh
		w.previous = nil
	}
	switch {
	case stream.Err() != nil: // an earlier request may have no answer
	case newest == 0:
		w.stream.stop(toStatus(stream, err)) // before later requests are answered; the client opens another stream
	default:
		w.stream.send(&pb.WatchResponse{Header: header(newest), WatchId: w.id, Created: true})
	}
	w.stream.answered(answered)
	if err != nil {
		return err
	}
	defer follower.Close()
	w.stream.mu.Lock()
	w.follower, w.sentRevision = follower, min(from-1, newest)
	requested := len(w.stream.progressRevisions) > 0
	w.stream.mu.Unlock()
	if requested {
		_ = follower.Bookmark(ctx) // a closed follower fails in Next
	}
	return w.follow(ctx, follower, from)
}

// end reports the reason why the watch ended, unless the whole stream has ended.
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
		w.stream.stop(toStatus(ctx, err)) // the client opens another stream and resumes
		return
	}
	if revisionsErr == nil {
		last.Header = header(newest)
	} else {
		last.Header = header(0)
	}
	w.stream.sendEnd(w, last)
}

// open opens a follower for the request, from a revision on.
func (w *watch) open(stream, ctx context.Context) (follower history.Follower, from, newest int64, err error) {
	for {
		follower, from, newest, err = w.openOnce(stream, ctx)
		if !errors.Is(err, storage.ErrCompacted) || from <= newest || ctx.Err() != nil {
			return follower, from, newest, err
		}
		// The watch needs no compacted changes: the newest revision at the beginning was compacted meanwhile.
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
		span = history.Range{From: afterAllKeys, To: afterAllKeys} // nothing is ever stored there
	}
	after := min(from-1, newest)
	if oldest == firstRevision {
		after = max(after, oldest) // nothing was compacted, and there is no earlier change
	}
	if after < oldest {
		return nil, from, newest, storage.ErrCompacted
	}
	follower, err = s.history.Follow(ctx, span, after)
	return follower, from, newest, err
}

// follow sends changes until the follower ends.
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
			_ = follower.Bookmark(ctx) // a closed follower fails in Next
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

// advance records that everything up to a revision has been sent.
func (w *watch) advance(revision int64) {
	w.stream.mu.Lock()
	w.sentRevision = max(w.sentRevision, revision)
	requested := len(w.stream.progressRevisions) > 0
	w.stream.mu.Unlock()
	if requested {
		w.stream.sendProgress()
	}
}

// events returns the requested changes, starting at a revision.
func (w *watch) events(changes []history.Change, from int64) []*mvccpb.Event {
	events := make([]*mvccpb.Event, 0, len(changes))
	for i := range changes {
		c := &changes[i]
		filter := pb.WatchCreateRequest_NOPUT
		if c.New == nil {
			filter = pb.WatchCreateRequest_NODELETE
		}
		if c.Revision < from || slices.Contains(w.request.Filters, filter) {
			continue
		}
		ev := &mvccpb.Event{Type: mvccpb.Event_PUT, Kv: pair(c.New)}
		if c.New == nil {
			ev.Type = mvccpb.Event_DELETE
			ev.Kv = &mvccpb.KeyValue{Key: keyOf(c.Old.Resource.GetId()), ModRevision: c.Revision}
		}
		if w.request.PrevKv {
			ev.PrevKv = pair(c.Old)
		}
		events = append(events, ev)
	}
	return events
}

// fragmentSize is the size above which a response is fragmented, if the request allows it.
const fragmentSize = 3 << 19

// sendEvents sends the events of complete commits, in one response unless it may be fragmented. No other response comes between the
// fragments, because etcd's client joins all responses up to the last fragment.
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
