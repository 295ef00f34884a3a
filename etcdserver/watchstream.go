package etcdserver

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage/history"
)

// noWatch is the watch number of responses that concern the whole stream, or no watch.
const noWatch = -1

// watchStream holds the watches of one stream.
type watchStream struct {
	server *Server
	to     grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]
	stop   context.CancelCauseFunc // ends the stream
	all    sync.WaitGroup          // all goroutines of the stream except the receiver
	slots  chan struct{}           // one element per create request without a response

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

// watch is one watch of a stream.
type watch struct {
	stream  *watchStream
	request *pb.WatchCreateRequest
	id      int64
	cancel  context.CancelFunc

	previous *watch        // a cancelled watch with the same number that has not ended yet, or nil
	finishCh chan struct{} // closed after the last response

	// Guarded by the lock of the stream.
	follower     history.Follower // nil until it is open
	sentRevision int64            // everything up to this revision has been sent
}

// send sends one response. An error ends the stream.
func (w *watchStream) send(r *pb.WatchResponse) bool {
	w.sendMu.Lock()
	defer w.sendMu.Unlock()
	return w.sendLocked(r)
}

// answered records that a create request has its response.
func (w *watchStream) answered(request chan<- struct{}) {
	close(request)
	<-w.slots
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
