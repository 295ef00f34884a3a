//go:build integration

package etcd_test

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// unlimitedRanges records the limits of range requests that do not limit the number of keys.
type unlimitedRanges struct {
	mu     sync.Mutex
	limits []int64
}

func (l *unlimitedRanges) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if r, ok := req.(*pb.RangeRequest); ok && len(r.RangeEnd) > 0 && !r.CountOnly && r.Limit <= 0 {
		l.mu.Lock()
		l.limits = append(l.limits, r.Limit)
		l.mu.Unlock()
	}
	return invoke(ctx, method, req, reply, conn, opts...)
}

// Requests to the server have a limit on the number of keys, whatever the limit of a page or a scan.
func TestLargestLimits(t *testing.T) {
	t.Parallel()
	var unlimited unlimitedRanges
	b := openThrough(t, env.Etcd(t), grpc.WithUnaryInterceptor(unlimited.intercept))
	const services, large = 424, 24 // all large services together exceed one response
	var writers sync.WaitGroup
	for i := range services {
		size := 0
		if i < large {
			size = 512 << 10
		}
		writers.Go(func() {
			if _, err := b.WriteCAS(fixture.Context(t), sized(fmt.Sprintf("s%03d", i), size)); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	for _, limit := range []int{math.MaxInt, math.MaxInt - 1, math.MaxInt / 2, math.MaxInt/3 + 1} {
		read := 0
		opts := storage.ListOptions{Consistency: storage.StrongConsistency, Limit: limit}
		for more := true; more; more = opts.Continue != "" {
			page, err := b.ListPage(fixture.Context(t), serviceType, tenancy, "", opts)
			if err != nil {
				t.Fatal(err)
			}
			read += len(page.Resources)
			opts.Continue = page.Continue
		}
		if read != services {
			t.Errorf("pages of %d have %d resources, expected %d", limit, read, services)
		}
		if len(unlimited.limits) > 0 {
			t.Errorf("with a limit of %d, requests had the limits %v", limit, unlimited.limits)
		}
		unlimited.limits = nil
	}
}
