package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var (
	everything = storage.UnversionedType{Group: "bench", Kind: "Thing"}
	anywhere   = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
)

func id(name string) *resourcepb.ID {
	return &resourcepb.ID{Uid: "uid-" + name, Name: name,
		Type:    &resourcepb.Type{Group: "bench", GroupVersion: "v1", Kind: "Thing"},
		Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"}}
}

// payload is random, so that compression favours no side.
func payload(size int) []byte {
	p := make([]byte, size)
	_, _ = rand.Read(p)
	return p
}

func resource(name string, size int) *resourcepb.Resource {
	return &resourcepb.Resource{Id: id(name), Metadata: map[string]string{"made-by": "bench"},
		Data: &anypb.Any{TypeUrl: "example.com/bench.Thing", Value: payload(size)}}
}

func open(b *testing.B, url string) storage.Backend {
	b.Helper()
	backend, err := storage.Open(context.Background(), url)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { backend.Close() })
	return backend
}

// keysPerCaller is the number of resources that each caller writes in turn, so that no caller waits for a row. payloads is the number of
// different contents that the writes use in turn, so that nearly every write changes all bytes of the content. Postgres would log only
// the difference otherwise.
const (
	keysPerCaller = 20
	payloads      = 13
)

// resourceSet is a set of resources that callers read, write and track.
type resourceSet struct {
	backend   storage.Backend
	resources [][]*resourcepb.Resource // by caller
	data      [payloads]*anypb.Any
}

// fill creates keysPerCaller resources for each caller.
func fill(b *testing.B, backend storage.Backend, prefix string, callers, size int) *resourceSet {
	b.Helper()
	h := &resourceSet{backend: backend, resources: make([][]*resourcepb.Resource, callers)}
	for i := range h.data {
		h.data[i] = resource("", size).Data
	}
	var running sync.WaitGroup
	slots := make(chan struct{}, 32)
	for c := range callers {
		h.resources[c] = make([]*resourcepb.Resource, keysPerCaller)
		slots <- struct{}{}
		running.Go(func() {
			defer func() { <-slots }()
			for k := range h.resources[c] {
				res, err := backend.WriteCAS(context.Background(), resource(fmt.Sprintf("%s-%d-%d", prefix, c, k), size))
				if err != nil {
					b.Error(err)
					return
				}
				h.resources[c][k] = res
			}
		})
	}
	running.Wait()
	return h
}

// write replaces one of the caller's resources.
func (h *resourceSet) write(caller, i int) error {
	at := &h.resources[caller][i%keysPerCaller]
	res, err := h.backend.WriteCAS(context.Background(), &resourcepb.Resource{Id: (*at).Id, Version: (*at).Version, Metadata: (*at).Metadata, Data: h.data[i%payloads]})
	if err == nil {
		*at = res
	}
	return err
}

var names atomic.Int64

// newName returns a name that was not used before.
func newName() string { return fmt.Sprintf("new-%d", names.Add(1)) }

// create creates a resource.
func (h *resourceSet) create(_, i int) error {
	_, err := h.createNew(i)
	return err
}

func (h *resourceSet) createNew(i int) (*resourcepb.Resource, error) {
	return h.backend.WriteCAS(context.Background(), &resourcepb.Resource{Id: id(newName()), Metadata: h.resources[0][0].Metadata, Data: h.data[i%payloads]})
}

// createAndDelete creates a resource and deletes it.
func (h *resourceSet) createAndDelete(_, i int) error {
	res, err := h.createNew(i)
	if err == nil {
		err = h.backend.DeleteCAS(context.Background(), res.Id, res.Version)
	}
	return err
}

// read reads one of the caller's resources strongly.
func (h *resourceSet) read(caller, i int) error {
	_, err := h.backend.Read(context.Background(), storage.StrongConsistency, h.resources[caller][i%keysPerCaller].Id)
	return err
}

// follow watches all measured resources, and reads the events after the snapshot until the benchmark ends.
func follow(b *testing.B, backend storage.Backend) { followNames(b, backend, 1, "") }

// followNames opens watches of a name prefix, and reads their events after the snapshot until the benchmark ends.
func followNames(b *testing.B, backend storage.Backend, watches int, prefix string) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for range watches {
		w, err := backend.WatchList(ctx, everything, anywhere, prefix)
		if err != nil {
			b.Fatal(err)
		}
		for synced := false; !synced; { // the snapshot is not part of the measurement
			ev, err := w.Next(ctx)
			if err != nil {
				b.Fatal(err)
			}
			synced = ev.GetEndOfSnapshot() != nil
		}
		running.Go(func() {
			defer w.Close()
			for {
				if _, err := w.Next(ctx); err != nil {
					if ctx.Err() == nil && !errors.Is(err, storage.ErrClosed) {
						b.Error(err)
					}
					return
				}
			}
		})
	}
	b.Cleanup(func() { cancel(); running.Wait() })
}

// eventLatency writes one resource n times on writer while reader watches it. For each write it returns the time from the
// acknowledgement to the event, at least 0, and the duration of the write.
func eventLatency(b *testing.B, writer, reader storage.Backend, name string, n int) (events, writes []time.Duration) {
	b.Helper()
	ctx := context.Background()
	w, err := reader.WatchList(ctx, everything, anywhere, name)
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	type seen struct {
		version string
		at      time.Time
	}
	seenAt := make(chan seen, n+1)
	stop, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		for {
			ev, err := w.Next(stop)
			if err != nil {
				return
			}
			if res := ev.GetUpsert().GetResource(); res != nil {
				seenAt <- seen{res.Version, time.Now()}
			}
		}
	}()
	res := resource(name, 500)
	for range n {
		began := time.Now()
		res, err = writer.WriteCAS(ctx, res)
		if err != nil {
			b.Fatal(err)
		}
		acknowledged := time.Now()
		ev := <-seenAt
		if ev.version != res.Version {
			b.Fatalf("the watch returned version %s, expected the written %s", ev.version, res.Version)
		}
		events = append(events, max(0, ev.at.Sub(acknowledged)))
		writes = append(writes, acknowledged.Sub(began))
	}
	return events, writes
}
