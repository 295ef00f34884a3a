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

// maxKeepAlives is how many leases of a stream are renewed at the same time. While there are more, the stream is not read on.
const maxKeepAlives = 1024

// LeaseKeepAlive implements etcd's Lease service. A lease that is not there is answered with a time to live of 0. No lease waits for the
// renewal of another one; the answers come as the renewals are done.
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
	case <-s.stopCh: // a client may send nothing more for long
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

// keepAlives are the renewals that one stream asks for.
type keepAlives struct {
	server   *Server
	to       grpc.BidiStreamingServer[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]
	stop     context.CancelCauseFunc // ends the stream
	renewals sync.WaitGroup          // the leases that are being renewed
	slots    chan struct{}           // and a place for each

	sendMu sync.Mutex // held while something is sent

	mu              sync.Mutex
	pendingRequests map[int64]int // how many requests of each lease are not answered
}

// receive takes requests until there are no more.
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
			continue // whoever renews the lease does it again
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

// renew renews a lease until all requests are answered. Those that have come before a renewal share it.
func (k *keepAlives) renew(ctx context.Context, id int64) {
	for {
		k.mu.Lock()
		asked := k.pendingRequests[id]
		k.mu.Unlock()
		answer, err := k.server.keepAlive(ctx, id)
		for i := 0; i < asked && err == nil; i++ {
			err = k.send(ctx, answer)
		}
		if err != nil {
			k.stop(err)
			return
		}
		k.mu.Lock()
		k.pendingRequests[id] -= asked
		over := k.pendingRequests[id] == 0
		if over {
			delete(k.pendingRequests, id)
		}
		k.mu.Unlock()
		if over {
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

// keepAlive renews a lease. The revision of the answer is one from before that: at a later one the lease may have been revoked.
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
