package controllertest

import (
	"context"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// link is the connection of a process to the service. It can be cut: streams end, and no new one opens before mend is called.
type link struct {
	resourcegrpc.ResourceServiceClient
	mu          sync.Mutex
	upCh        chan struct{} // closed while the link works
	cancels     []context.CancelFunc
	forgetAt    bool // cursors are too old
	streamCount int  // streams since the last call of mend
}

func newLink(client resourcegrpc.ResourceServiceClient) *link {
	l := &link{ResourceServiceClient: client, upCh: make(chan struct{})}
	close(l.upCh)
	return l
}

// cut ends all streams.
func (l *link) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.upCh = make(chan struct{})
	for _, cancel := range l.cancels {
		cancel()
	}
	l.cancels = nil
}

// mend ends cut. With compacted, the history of the service is gone: streams cannot be resumed.
func (l *link) mend(compacted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetAt = compacted
	l.streamCount = 0
	close(l.upCh)
}

// WatchList opens a stream when the link works.
func (l *link) WatchList(ctx context.Context, in *resourcepb.WatchListRequest, opts ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.WatchEvent], error) {
	l.mu.Lock()
	upCh := l.upCh
	l.mu.Unlock()
	select {
	case <-upCh:
	case <-ctx.Done():
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if in.GetCursor() != "" && l.forgetAt {
		l.forgetAt = false
		return nil, status.Error(codes.OutOfRange, "history has been compacted")
	}
	ctx, cancel := context.WithCancel(ctx)
	l.cancels = append(l.cancels, cancel)
	l.streamCount++
	return l.ResourceServiceClient.WatchList(ctx, in, opts...)
}
