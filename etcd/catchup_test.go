//go:build integration

package etcd_test

import (
	"context"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestCatchUpThroughOneWatch has a watch read many pages of history. To begin a watch of etcd for each would cost the server a
// look at all that is still to come, again and again.
func TestCatchUpThroughOneWatch(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	var begun atomic.Int64
	count := func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		begun.Add(1)
		return stream(ctx, desc, conn, method, opts...)
	}
	b := openThrough(t, server, grpc.WithChainStreamInterceptor(count))
	cursor := fixture.WatchChanges(t, b).Cursor()
	const changes = 2500 // one by one, since the server sends up to 1,000 revisions at once
	res := fixture.Write(t, b, service("s"))
	for range changes - 1 {
		res = fixture.Write(t, b, at(res, res.Version))
	}

	before := begun.Load()
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
	if n := begun.Load() - before; n != 1 {
		t.Errorf("%d watches of etcd were begun, want 1", n)
	}
	wantNext(t, w, upserted(fixture.Write(t, b, service("after"))))
}
