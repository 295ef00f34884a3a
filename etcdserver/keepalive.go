package etcdserver

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
)

// maxKeepAlives is the maximum number of leases of a stream that are renewed at the same time. At the limit, the server stops reading the
// stream.
const maxKeepAlives = 1024

// LeaseKeepAlive implements etcd's Lease service. A missing lease is answered with a time to live of 0. Renewals of different leases do not
// wait for each other, and each is answered when it is done.
func (s *Server) LeaseKeepAlive(to grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
	ctx, stop := context.WithCancelCause(to.Context())
	defer stop(nil)
	k := &keepAlives{server: s, to: to, stop: stop, pendingRequests: map[int64]int{}, slots: make(chan struct{}, maxKeepAlives)}
	ended := make(chan error, 1)
	go func() { // ends with the stream's context
		err := k.receive(ctx)
		k.renewals.Wait()
		ended <- err
	}()
	var err error
	select {
	case err = <-ended:
	case <-ctx.Done():
	case <-s.stopCh: // a client may send nothing for a long time
		return errStopped
	}
	switch {
	case to.Context().Err() != nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return err
}

// keepAlives handles the renewals of one stream.
type keepAlives struct {
	server   *Server
	to       grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]
	stop     context.CancelCauseFunc // ends the stream
	renewals sync.WaitGroup          // one per lease being renewed
	slots    chan struct{}           // one element per lease being renewed

	sendMu sync.Mutex // held during a send

	mu              sync.Mutex
	pendingRequests map[int64]int // number of unanswered requests per lease
}

// receive handles requests until the client sends no more.
func (k *keepAlives) receive(ctx context.Context) error {
	for {
		r, err := k.to.Recv()
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		k.mu.Lock()
		k.pendingRequests[r.ID]++
		first := k.pendingRequests[r.ID] == 1
		k.mu.Unlock()
		if !first {
			continue // the running renewal handles this request, too
		}
		select {
		case k.slots <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		k.renewals.Go(func() {
			defer func() { <-k.slots }()
			k.renew(ctx, r.ID)
		})
	}
}

// renew renews a lease until all requests are answered. Requests received before a renewal share it.
func (k *keepAlives) renew(ctx context.Context, id int64) {
	for {
		k.mu.Lock()
		requests := k.pendingRequests[id]
		k.mu.Unlock()
		answer, err := k.server.keepAlive(ctx, id)
		for i := 0; i < requests && err == nil; i++ {
			err = k.send(ctx, answer)
		}
		if err != nil {
			k.stop(err)
			return
		}
		k.mu.Lock()
		k.pendingRequests[id] -= requests
		done := k.pendingRequests[id] == 0
		if done {
			delete(k.pendingRequests, id)
		}
		k.mu.Unlock()
		if done {
			return
		}
	}
}

func (k *keepAlives) send(ctx context.Context, answer *pb.LeaseKeepAliveResponse) error {
	k.sendMu.Lock()
	defer k.sendMu.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return k.to.Send(answer)
}

// keepAlive renews a lease. The response has a revision from before the renewal, because the lease may have been revoked at a later one.
func (s *Server) keepAlive(ctx context.Context, id int64) (*pb.LeaseKeepAliveResponse, error) {
	defer s.leases.Extend(leaseName(id))()
	h, err := s.header(ctx)
	if err != nil {
		return nil, err
	}
	ttl, err := s.leases.Renew(ctx, leaseName(id))
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return nil, toStatus(ctx, err)
	}
	return &pb.LeaseKeepAliveResponse{Header: h, ID: id, TTL: int64(ttl / time.Second)}, nil
}
