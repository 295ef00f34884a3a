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

// limits notes the requests that ask for a range of keys without a bound on their number.
type limits struct {
	mu      sync.Mutex
	without []int64
}

func (l *limits) watch(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	if r, ok := req.(*pb.RangeRequest); ok && len(r.RangeEnd) > 0 && !r.CountOnly && r.Limit <= 0 {
		l.mu.Lock()
		l.without = append(l.without, r.Limit)
		l.mu.Unlock()
	}
	return invoke(ctx, method, req, reply, conn, opts...)
}

// However large the limit of a page or a scan is, the server is asked for a bounded number of resources at a time.
func TestLargestLimits(t *testing.T) {
	t.Parallel()
	var asked limits
	b := openThrough(t, env.Etcd(t), grpc.WithUnaryInterceptor(asked.watch))
	const services, large = 424, 24 // one answer may not hold all that are large
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
			t.Errorf("pages of %d hold %d resources, expected %d", limit, read, services)
		}
		if len(asked.without) > 0 {
			t.Errorf("with a limit of %d, requests had the limits %v", limit, asked.without)
		}
		asked.without = nil
	}
}
