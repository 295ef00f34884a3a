//go:build integration

package bench

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/lease"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	types "github.com/ashlar-dev/storage/service/registry"
)

// fenced compares the updates of a controller's workers with and without the fence of its lease: a fenced one checks the record of the lease in its
// transaction. Both go through the resource service.
func fenced(b *testing.B, name string, backend storage.Backend, callers []int) {
	const what = "fenced-write"
	if !selected(name + "/" + what) {
		return
	}
	ctx := context.Background()
	client := service.New(backend, types.NewOpen(types.Type{}), nil).Client()
	elector := must(lease.NewElector(backend, anywhere, "bench-fence", nil))
	tenure := must(elector.Campaign(ctx))
	b.Cleanup(func() { _ = tenure.Resign(ctx) })
	fence := tenure.Fence()
	encoded := must(proto.Marshal(&resourcepb.Resource{Id: fence.Check, Version: fence.Version}))
	data := &anypb.Any{TypeUrl: "example.com/bench.Thing", Value: payload(500)}
	write := func(ctx context.Context, caller, i int) error {
		res := &resourcepb.Resource{Id: id(fmt.Sprintf("fenced-%d-%d", caller, i%keysPerCaller)), Data: data}
		res.Id.Uid = ""
		_, err := client.Write(ctx, &resourcepb.WriteRequest{Resource: res})
		return err
	}
	for c := range min(maxCallers(), callers[len(callers)-1]) {
		for k := range keysPerCaller {
			if err := write(ctx, c, k); err != nil {
				b.Fatal(err)
			}
		}
	}
	withFence := metadata.AppendToOutgoingContext(ctx, "ashlar-fence-bin", string(encoded))
	compare(b, name, what, callers, side{"unfenced", func(caller, i int) error { return write(ctx, caller, i) }},
		side{"fenced", func(caller, i int) error { return write(withFence, caller, i) }})
}
