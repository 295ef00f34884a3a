//go:build integration

package etcd_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A watch reads many pages of history through one watch of etcd. For each watch of etcd the server scans all later changes.
func TestCatchUpThroughOneWatch(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	var streams atomic.Int64
	count := func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		streams.Add(1)
		return stream(ctx, desc, conn, method, opts...)
	}
	b := openThrough(t, server, grpc.WithChainStreamInterceptor(count))
	cursor := fixture.WatchChanges(t, b).Cursor()
	const callers, changes = 50, 2500
	h := historian(t, b)
	together(callers, func(i int) {
		for j := range changes / callers {
			// A swap has its own revision. The server sends up to 1,000 revisions at once.
			if s, err := h.Swap(fixture.Context(t), history.Swap{Write: service(fmt.Sprint("s", i, "-", j))}); err != nil || !s.Done {
				t.Errorf("swap %d of caller %d: %v, %v", j, i, s, err)
				return
			}
		}
	})

	before := streams.Load()
	w, err := b.WatchFrom(fixture.Context(t), serviceType, tenancy, "", cursor)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i := range changes {
		if _, err := w.Next(fixture.Context(t)); err != nil {
			t.Fatalf("event %d: %v", i, err)
		}
	}
	if n := streams.Load() - before; n != 1 {
		t.Errorf("%d watches of etcd were opened, want 1", n)
	}
	wantNext(t, w, upserted(fixture.Write(t, b, service("after"))))
}
