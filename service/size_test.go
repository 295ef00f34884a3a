package service_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// The largest writable resource with a finalizer can be marked for deletion, and its statuses leave room for the mark, too.
func TestLargestResourceCanBeMarked(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	b := inmem.New(nil)
	defer b.Close()
	c := service.New(b, registry.NewOpen(registry.Type{}), nil).Client()
	const most = 1 << 20
	for _, finalizers := range []string{"", "x"} {
		res := album("a"+finalizers, "")
		res.Metadata = map[string]string{"finalizers": finalizers}
		fits := func(size int) *resourcepb.Resource {
			t.Helper()
			res.Data = &anypb.Any{TypeUrl: "a/b", Value: make([]byte, size)}
			out, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: res})
			if err != nil && status.Code(err) != codes.ResourceExhausted {
				t.Fatal(err)
			}
			return out.GetResource()
		}
		low, high := most/2, most // the largest payload is in [low, high)
		for high-low > 1 {
			if mid := (low + high) / 2; fits(mid) != nil {
				low = mid
			} else {
				high = mid
			}
		}
		largest := fits(low)
		_, err := c.WriteStatus(ctx, &resourcepb.WriteStatusRequest{
			Id: largest.GetId(), Key: "k", Status: &resourcepb.Status{ObservedGeneration: largest.GetGeneration()},
		})
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("finalizers %q: a status on top of %d bytes of payload: %v", finalizers, low, err)
		}
		if _, err := c.Delete(ctx, &resourcepb.DeleteRequest{Id: largest.GetId()}); err != nil {
			t.Errorf("finalizers %q: %d bytes of payload: %v", finalizers, low, err)
		}
	}
}
