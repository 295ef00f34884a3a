package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
)

// stream is one watch of the server on its own gRPC stream. The client's Watcher does not fit: it reconnects silently, at a revision that
// may have been compacted in the meantime, and buffers without a bound.
type stream struct {
	watch     pb.Watch_WatchClient
	cancel    context.CancelFunc
	responses chan *pb.WatchResponse // each has complete revisions
	err       error                  // the reason why responses was closed
}

// openStream watches a key, or the range up to end, from a revision on. It returns once the server has accepted the watch.
// The error matches storage.ErrCompacted if that revision is compacted.
func openStream(ctx context.Context, c *conn, key, end []byte, from int64) (*stream, error) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	// A server may accept the connection and never answer.
	timer := time.AfterFunc(attemptTimeout, cancel)
	s := &stream{cancel: cancel, responses: make(chan *pb.WatchResponse)}
	if err := s.create(ctx, c, key, end, from); err != nil {
		timer.Stop()
		cancel()
		return nil, err
	}
	if !timer.Stop() {
		cancel()
		return nil, errors.New("etcd did not answer the creation of a watch")
	}
	go s.receive(ctx)
	return s, nil
}

func (s *stream) create(ctx context.Context, c *conn, key, end []byte, from int64) error {
	var err error
	if s.watch, err = pb.NewWatchClient(c.client.ActiveConnection()).Watch(ctx, grpc.ForceCodecV2(protoCodec{})); err != nil {
		return err
	}
	err = s.watch.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{
		Key: key, RangeEnd: end, StartRevision: from, PrevKv: true, ProgressNotify: true, Fragment: true,
	}}})
	if err != nil {
		return err
	}
	resp, err := s.watch.Recv()
	if err != nil {
		return err
	}
	if !resp.Created {
		return errors.New("etcd answered the creation of a watch with an unexpected response")
	}
	return cancelError(resp)
}

// cancelError returns the error of a response that ends a watch, or nil.
func cancelError(resp *pb.WatchResponse) error {
	switch {
	case resp.CompactRevision != 0:
		return compactedError{resp.CompactRevision}
	case resp.Canceled:
		if resp.CancelReason == "" {
			return rpctypes.ErrFutureRev
		}
		return fmt.Errorf("etcd cancelled the watch: %s", resp.CancelReason)
	}
	return nil
}

// receive reads responses until the stream ends. The server sends up to 1,000 revisions at once to a watch that lags, in fragments of
// about 1.5 MiB. A complete response may take a gigabyte, so receive passes on single fragments. It joins only a revision that continues
// in the next fragment.
func (s *stream) receive(ctx context.Context) {
	defer close(s.responses)
	var pending []*mvccpb.Event // of an incomplete revision
	for {
		resp, err := s.watch.Recv()
		if err == nil {
			err = cancelError(resp)
		}
		if err != nil {
			s.err = err
			return
		}
		resp.Events = append(pending, resp.Events...)
		if pending = nil; resp.Fragment {
			if resp.Events, pending = cutLast(resp.Events); len(resp.Events) == 0 {
				continue // without events it would look like a progress response
			}
		}
		select {
		case s.responses <- resp:
		case <-ctx.Done():
			s.err = ctx.Err()
			return
		}
	}
}

// requestProgress requests a progress response. The server sends it once the watch has reached the newest revision.
func (s *stream) requestProgress() error {
	return s.watch.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
}

// close ends the stream and waits for its goroutine.
func (s *stream) close() {
	s.cancel()
	for range s.responses {
		continue
	}
}

// cutLast separates the events of the last revision from those before.
func cutLast(events []*mvccpb.Event) (before, last []*mvccpb.Event) {
	n := len(events)
	for n > 0 && events[n-1].Kv.ModRevision == events[len(events)-1].Kv.ModRevision {
		n--
	}
	return events[:n:n], events[n:]
}

// byRevision calls each with the events of every revision in turn, until it returns false.
func byRevision(events []*mvccpb.Event, each func(rev int64, events []*mvccpb.Event) bool) bool {
	for len(events) > 0 {
		n, rev := 1, events[0].Kv.ModRevision
		for n < len(events) && events[n].Kv.ModRevision == rev {
			n++
		}
		if !each(rev, events[:n]) {
			return false
		}
		events = events[n:]
	}
	return true
}

// progressPause is the interval of progress requests while a reader of history or a bookmark waits for one.
const progressPause = 20 * time.Millisecond

// await returns the next response. It requests progress until one arrives.
func (s *stream) await(ctx context.Context) (*pb.WatchResponse, error) {
	ticker := time.NewTicker(progressPause)
	defer ticker.Stop()
	for {
		select {
		case resp, ok := <-s.responses:
			if !ok {
				return nil, s.err
			}
			return resp, nil
		case <-ticker.C:
			if err := s.requestProgress(); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// scan calls each with the events of a key, one revision at a time, until each returns false or revision until has been passed. until
// must exist; events after it may be included. The error matches storage.ErrCompacted if the history is compacted.
func scan(ctx context.Context, c *conn, key []byte, from, until int64, each func(rev int64, events []*mvccpb.Event) bool) error {
	if from > until {
		return nil
	}
	next, stopped := from, false
	_, err := retry(ctx, c.retries, func(ctx context.Context) (_ struct{}, err error) {
		if next <= until && !stopped {
			next, stopped, err = scanOnce(ctx, c, key, next, until, each)
		}
		// Attempts that failed may have read events, so the check is for all of them. Events that end the scan are true without it.
		if err == nil && !stopped {
			err = checkRetained(ctx, c, from-1)
		}
		return struct{}{}, err
	})
	return err
}

// scanOnce is one attempt of scan. It returns the start revision of the next attempt, and whether each returned false.
func scanOnce(ctx context.Context, c *conn, key []byte, from, until int64, each func(int64, []*mvccpb.Event) bool) (next int64, stopped bool, err error) {
	s, err := openStream(ctx, c, key, nil, from)
	if err != nil {
		return from, false, err
	}
	defer s.close()
	next = from
	for next <= until && !stopped {
		resp, err := s.await(ctx)
		if err != nil {
			return next, false, err
		}
		if len(resp.Events) == 0 {
			next = max(next, resp.Header.Revision+1)
			continue
		}
		stopped = !byRevision(resp.Events, func(rev int64, events []*mvccpb.Event) bool {
			next = rev + 1
			return each(rev, events)
		})
	}
	return next, stopped, nil
}

// addPrevious reads the previous values of deletions at rev that the server sent without them. A missing value does not prove a
// compaction: the server registers a watch before it records that the watch wants previous values, so the first events of a new watch
// may lack them (etcdserver/api/v3rpc/watch.go, v3.6.16). The error matches storage.ErrCompacted if the previous revision is compacted.
func addPrevious(ctx context.Context, c *conn, rev int64, changes []*mvccpb.Event) error {
	for _, change := range changes {
		if change.Type != mvccpb.DELETE || change.PrevKv != nil {
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		resp, err := c.kv.Get(attempt, string(change.Kv.Key), clientv3.WithRev(rev-1))
		cancel()
		if err != nil {
			return fmt.Errorf("read the value that revision %d deleted: %w", rev, translate(err))
		}
		if change.PrevKv = first(resp.Kvs); change.PrevKv == nil {
			return fmt.Errorf("%w: revision %d deleted %q, which has no value at revision %d", storage.ErrCompacted, rev, change.Kv.Key, rev-1)
		}
	}
	return nil
}

// checkRetained fails if the history after a revision is compacted. A watch that starts at the very revision of a compaction gets no
// error, but may lack the deletions of that revision.
func checkRetained(ctx context.Context, c *conn, rev int64) error {
	if rev <= 0 {
		return nil
	}
	_, err := c.kv.Get(ctx, c.layout.storeKey(), clientv3.WithRev(rev), clientv3.WithCountOnly())
	return err
}
