package inmem_test

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

// filled returns a backend and its n resources of 500 bytes.
func filled(b *testing.B, n int) (*inmem.Backend, []*resourcepb.Resource) {
	b.Helper()
	backend := inmem.New(nil)
	b.Cleanup(func() { backend.Close() })
	stored := make([]*resourcepb.Resource, n)
	for i := range stored {
		res, err := backend.WriteCAS(context.Background(), &resourcepb.Resource{
			Id: &resourcepb.ID{Uid: "uid", Name: fmt.Sprintf("%06d", i), Type: &resourcepb.Type{Group: "bench", GroupVersion: "v1", Kind: "Thing"},
				Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"}},
			Metadata: map[string]string{"made-by": "bench"},
			Data:     &anypb.Any{TypeUrl: "example.com/bench.Thing", Value: make([]byte, 500)},
		})
		if err != nil {
			b.Fatal(err)
		}
		stored[i] = res
	}
	return backend, stored
}

func BenchmarkRead(b *testing.B) {
	backend, stored := filled(b, 100_000)
	i := 0
	for b.Loop() {
		i++
		if _, err := backend.Read(context.Background(), storage.EventualConsistency, stored[i*7919%len(stored)].Id); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	backend, stored := filled(b, 100_000)
	w, err := backend.WatchList(context.Background(), everything, anywhere(), "none of these")
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	i := 0
	for b.Loop() {
		i++
		at := &stored[i*7919%len(stored)]
		res, err := backend.WriteCAS(context.Background(), *at)
		if err != nil {
			b.Fatal(err)
		}
		*at = res
	}
}
