package etcdserver

import (
	"bytes"
	"context"
	"errors"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

// maxUnanswered is the maximum number of create requests of a stream without a response. At the limit, the server stops reading the stream.
const maxUnanswered = 4096

// Watch implements etcd's Watch service. Up to maxUnanswered, reading requests does not wait for sending a response, because some clients send
// and receive in one goroutine.
func (s *Server) Watch(to grpc.BidiStreamingServer[pb.WatchRequest, pb.WatchResponse]) error {
	ctx, stop := context.WithCancelCause(to.Context())
	defer stop(nil)
	w := &watchStream{server: s, to: to, stop: stop, watches: map[int64]*watch{}, ending: map[int64]*watch{}, slots: make(chan struct{}, maxUnanswered)}
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

// create starts a watch. Responses to create requests keep their order.
func (w *watchStream) create(ctx context.Context, r *pb.WatchCreateRequest) {
	select {
	case w.slots <- struct{}{}: // until the response
	case <-ctx.Done():
		return
	}
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
			one.reject(ctx, before, answered, reason)
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
