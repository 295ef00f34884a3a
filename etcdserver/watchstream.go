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

// Watch implements etcd's Watch service. Nothing that reads requests ever waits for an answer to be sent: some clients send and receive by
// one goroutine.
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
	if !errors.Is(err, errStopped) { // else a client that reads nothing would hold up the end of the server
		w.all.Wait()
	}
	if to.Context().Err() != nil {
		return nil
	}
	return toStatus(to.Context(), err)
}

// watchStream is the watches of one stream.
type watchStream struct {
	server *Server
	to     grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]
	stop   context.CancelCauseFunc // ends the stream
	all    sync.WaitGroup          // what runs for it, but not what receives

	sendMu sync.Mutex // held while something is sent
	newest int64      // the newest revision that events were sent with

	mu                sync.Mutex
	closed            bool // nothing is begun any more
	watches           map[int64]*watch
	ending            map[int64]*watch // those that their client has cancelled and whose end is not told yet: their numbers are free
	next              int64            // the number of the next watch that does not bring its own
	progressRevisions []int64          // revisions that are to be told once all watches have come so far: at most the first and the newest
	progressRunning   bool             // a request for progress is under way
	progressPending   bool             // and another one has come
	lastCreate        <-chan struct{}  // closed when the newest request to create a watch is answered
}

// receive handles requests until the stream ends. A client that has no more of them still watches.
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

// requestProgress has the stream tell its revision. Requests that come while one is under way share the next answer.
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

// send sends one answer. An error ends the stream.
func (w *watchStream) send(r *pb.WatchResponse) bool {
	w.sendMu.Lock()
	defer w.sendMu.Unlock()
	return w.sendLocked(r)
}

// sendEnd sends the last answer to a watch. Who has got it may use the watch's number again.
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

// sendLocked sends an answer. The caller holds the lock of sending.
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

// create begins a watch. The answers to requests come in their order.
func (w *watchStream) create(ctx context.Context, r *pb.WatchCreateRequest) {
	before, answered := w.lastCreate, make(chan struct{})
	w.lastCreate = answered
	one := &watch{stream: w, request: r, finishCh: make(chan struct{})}
	mine, cancel := context.WithCancel(ctx)
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
	if one.id = r.WatchId; one.id == 0 { // 0 asks for a number that is free
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
		one.end(ctx, mine, one.run(ctx, mine, before, answered))
		w.sendProgress()
	})
}

// noWatch is the number of no watch: what concerns all of a stream, or none of its watches, carries it.
const noWatch = -1

// startProgress has the stream tell its revision once every watch has sent all up to it.
func (w *watchStream) startProgress(ctx context.Context) {
	_, newest, err := w.server.history.Revisions(ctx)
	if err != nil {
		return // the client asks again
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
		_ = f.Bookmark(ctx) // one that has ended holds nothing up
	}
	w.sendProgress()
}

// sendProgress answers the requests for sendProgress up to which every watch has sent everything, if no watch has sent more: clients take sendProgress
// for the revision at which they are. Else those watches that are behind have to come as far as the others first.
func (w *watchStream) sendProgress() {
	w.sendMu.Lock() // so that no watch sends between the look and the answer
	w.mu.Lock()
	least, known := int64(0), false
	for _, one := range w.watches {
		if !known || one.sentRevision < least {
			least, known = one.sentRevision, true
		}
	}
	var left []int64
	for _, revision := range w.progressRevisions {
		if revision > least {
			left = append(left, revision)
		}
	}
	answer := known && len(left) < len(w.progressRevisions)
	var behind []history.Follower
	switch {
	case !known:
		left = nil // no watch is left to speak of
	case answer && least < w.newest:
		answer = false
		if len(left) == 0 || left[0] > w.newest {
			left = append([]int64{w.newest}, left...)
		}
		for _, one := range w.watches {
			if one.follower != nil && one.sentRevision < w.newest {
				behind = append(behind, one.follower)
			}
		}
	}
	w.progressRevisions = left
	w.mu.Unlock()
	var err error
	if answer {
		err = w.to.Send(&pb.WatchResponse{Header: header(least), WatchId: noWatch})
	}
	w.sendMu.Unlock()
	if err != nil {
		w.stop(err)
	}
	for _, f := range behind {
		_ = f.Bookmark(w.to.Context()) // one that has ended holds nothing up
	}
}
