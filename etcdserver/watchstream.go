package etcdserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage/history"
)

// Watch implements etcd's Watch service. Reading requests never waits for sending a response, because some clients send and receive in one
// goroutine.
func (s *Server) Watch(to grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	ctx, stop := context.WithCancelCause(to.Context())
	defer stop(nil)
	w := &watchStream{server: s, to: to, stop: stop, watches: map[int64]*watch{}, ending: map[int64]*watch{}}
	requests := make(chan error, 1)
	go func() { requests <- w.receive(ctx) }() // ends with the stream's context
	var err error
	select {
	case err = <-requests:
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-s.stopCh:
		err = errStopped
	}
	stop(err)
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	if !errors.Is(err, errStopped) { // otherwise a client that does not read would delay the end of the server
		w.all.Wait()
	}
	if to.Context().Err() != nil {
		return nil
	}
	return toStatus(to.Context(), err)
}

// watchStream holds the watches of one stream.
type watchStream struct {
	server *Server
	to     grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]
	stop   context.CancelCauseFunc // ends the stream
	all    sync.WaitGroup          // all goroutines of the stream except the receiver

	sendMu sync.Mutex // held during a send
	newest int64      // newest revision sent with events

	mu                sync.Mutex
	closed            bool // no new watches
	watches           map[int64]*watch
	ending            map[int64]*watch // cancelled by the client, end not sent yet: their numbers are free
	next              int64            // number of the next watch without its own
	progressRevisions []int64          // revisions to report once all watches have reached them: at most the first and the newest
	progressRunning   bool             // a progress request is active
	progressPending   bool             // another progress request has arrived
	lastCreate        <-chan struct{}  // closed when the newest create request is answered
}

// receive handles requests until the stream ends. After the client's last request the watches continue.
func (w *watchStream) receive(ctx context.Context) error {
	created := make(chan struct{})
	close(created)
	w.lastCreate = created
	for {
		r, err := w.to.Recv()
		if errors.Is(err, io.EOF) {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		switch r := r.RequestUnion.(type) {
		case *pb.WatchRequest_CreateRequest:
			if r.CreateRequest != nil {
				w.create(ctx, r.CreateRequest)
			}
		case *pb.WatchRequest_CancelRequest:
			w.mu.Lock()
			if one := w.watches[r.CancelRequest.GetWatchId()]; one != nil {
				delete(w.watches, one.id)
				w.ending[one.id] = one
				one.cancel()
			}
			w.mu.Unlock()
		case *pb.WatchRequest_ProgressRequest:
			w.requestProgress(ctx)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// requestProgress makes the stream report its revision. Requests during an active one share the next response.
func (w *watchStream) requestProgress(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.progressPending = w.progressRunning; w.progressRunning || w.closed {
		return
	}
	w.progressRunning = true
	w.all.Go(func() {
		for {
			w.startProgress(ctx)
			w.mu.Lock()
			if !w.progressPending {
				w.progressRunning = false
				w.mu.Unlock()
				return
			}
			w.progressPending = false
			w.mu.Unlock()
		}
	})
}

// send sends one response. An error ends the stream.
func (w *watchStream) send(r *pb.WatchResponse) bool {
	w.sendMu.Lock()
	defer w.sendMu.Unlock()
	return w.sendLocked(r)
}

// sendEnd sends the last response of a watch. After it the client may reuse the watch's number.
func (w *watchStream) sendEnd(one *watch, r *pb.WatchResponse) {
	w.sendMu.Lock()
	defer w.sendMu.Unlock()
	w.mu.Lock()
	for _, all := range []map[int64]*watch{w.watches, w.ending} {
		if all[one.id] == one {
			delete(all, one.id)
		}
	}
	w.mu.Unlock()
	w.sendLocked(r)
}

// sendLocked sends a response. The caller holds sendMu.
func (w *watchStream) sendLocked(r *pb.WatchResponse) bool {
	if len(r.Events) > 0 {
		w.newest = max(w.newest, r.Header.GetRevision())
	}
	if err := w.to.Send(r); err != nil {
		w.stop(err)
		return false
	}
	return true
}

// create starts a watch. Responses to create requests keep their order.
func (w *watchStream) create(ctx context.Context, r *pb.WatchCreateRequest) {
	before, answered := w.lastCreate, make(chan struct{})
	w.lastCreate = answered
	one := &watch{stream: w, request: r, finishCh: make(chan struct{})}
	watchCtx, cancel := context.WithCancel(ctx)
	one.cancel = cancel
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		cancel()
		return
	}
	reason := ""
	switch {
	case r.StartRevision < 0:
		reason = rpctypes.ErrorDesc(rpctypes.ErrGRPCCompacted)
	case len(r.RangeEnd) > 0 && !isAll(r.RangeEnd) && bytes.Compare(r.Key, r.RangeEnd) >= 0:
		reason = "mvcc: watcher range is empty"
	case r.WatchId != 0 && w.watches[r.WatchId] != nil:
		reason = "mvcc: watch: duplicate watch ID provided on the WatchStream"
	}
	if reason != "" {
		w.all.Go(func() {
			defer cancel()
			one.reject(before, answered, reason)
		})
		return
	}
	if one.id = r.WatchId; one.id == 0 { // 0 requests a free number
		for w.watches[w.next] != nil {
			w.next++
		}
		one.id = w.next
		w.next++
	}
	one.previous = w.ending[one.id]
	w.watches[one.id] = one
	w.all.Go(func() {
		defer close(one.finishCh)
		defer one.cancel()
		one.end(ctx, watchCtx, one.run(ctx, watchCtx, before, answered))
		w.sendProgress()
	})
}

// noWatch is the watch number of responses that concern the whole stream, or no watch.
const noWatch = -1

// startProgress makes the stream report the newest revision once every watch has sent all changes up to it.
func (w *watchStream) startProgress(ctx context.Context) {
	_, newest, err := w.server.history.Revisions(ctx)
	if err != nil {
		return // the client retries
	}
	w.mu.Lock()
	switch {
	case len(w.watches) == 0:
	case len(w.progressRevisions) == 2:
		w.progressRevisions[1] = newest
	default:
		w.progressRevisions = append(w.progressRevisions, newest)
	}
	var followers []history.Follower
	for _, one := range w.watches {
		if one.follower != nil && one.sentRevision < newest {
			followers = append(followers, one.follower)
		}
	}
	w.mu.Unlock()
	for _, f := range followers {
		_ = f.Bookmark(ctx) // a closed follower blocks no progress
	}
	w.sendProgress()
}

// sendProgress answers progress requests for revisions that every watch has reached, unless a watch has sent a newer one: clients take
// progress for their current revision. In that case the watches that are behind must catch up first.
func (w *watchStream) sendProgress() {
	w.sendMu.Lock() // no watch may send between the check and the response
	w.mu.Lock()
	lowest, known := int64(0), false
	for _, one := range w.watches {
		if !known || one.sentRevision < lowest {
			lowest, known = one.sentRevision, true
		}
	}
	var unreached []int64
	for _, revision := range w.progressRevisions {
		if revision > lowest {
			unreached = append(unreached, revision)
		}
	}
	answer := known && len(unreached) < len(w.progressRevisions)
	var behind []history.Follower
	switch {
	case !known:
		unreached = nil // there is no watch
	case answer && lowest < w.newest:
		answer = false
		if len(unreached) == 0 || unreached[0] > w.newest {
			unreached = append([]int64{w.newest}, unreached...)
		}
		for _, one := range w.watches {
			if one.follower != nil && one.sentRevision < w.newest {
				behind = append(behind, one.follower)
			}
		}
	}
	w.progressRevisions = unreached
	w.mu.Unlock()
	var err error
	if answer {
		err = w.to.Send(&pb.WatchResponse{Header: header(lowest), WatchId: noWatch})
	}
	w.sendMu.Unlock()
	if err != nil {
		w.stop(err)
	}
	for _, f := range behind {
		_ = f.Bookmark(w.to.Context()) // a closed follower blocks no progress
	}
}
