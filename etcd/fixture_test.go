//go:build integration

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/testenv"
	"github.com/ashlar-dev/storage/resourcepb"
)

// patience is how long these tests wait for what has to happen.
const patience = time.Minute

var (
	serviceType = storage.UnversionedType{Group: "catalog", Kind: "Service"}
	tenancy     = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
)

func service(name string) *resourcepb.Resource {
	return &resourcepb.Resource{
		Id: &resourcepb.ID{
			Uid: "uid-" + name, Name: name, Tenancy: tenancy,
			Type: &resourcepb.Type{Group: serviceType.Group, GroupVersion: "v1", Kind: serviceType.Kind},
		},
		Metadata: map[string]string{"written-by": "test"},
	}
}

// sized gives a service a payload.
func sized(name string, bytes int) *resourcepb.Resource {
	res := service(name)
	res.Data = &anypb.Any{TypeUrl: "example.com/Blob", Value: []byte(strings.Repeat("x", bytes))}
	return res
}

// at returns a resource to be written over a version.
func at(res *resourcepb.Resource, version string) *resourcepb.Resource {
	out := service(res.Id.Name)
	out.Id.Uid, out.Version = res.Id.Uid, version
	return out
}

func within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// open opens a store, closed with the test.
func open(t testing.TB, rawURL string) *etcd.Backend {
	t.Helper()
	b, err := etcd.Open(within(t), parsed(t, rawURL))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

func parsed(t testing.TB, rawURL string) *url.URL {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// openThrough opens a store with a client of the test's own, to see or to change what it sends.
func openThrough(t testing.TB, server *testenv.EtcdServer, options ...grpc.DialOption) *etcd.Backend {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint}, Logger: zap.NewNop(), DialOptions: options})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	b, err := etcd.New(within(t), client, &etcd.Options{Prefix: server.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// through is the URL of a store with another server in it.
func through(url, from, to string) string { return strings.Replace(url, from, to, 1) }

func write(t testing.TB, b storage.Backend, res *resourcepb.Resource) *resourcepb.Resource {
	t.Helper()
	out, err := b.WriteCAS(within(t), res)
	if err != nil {
		t.Fatalf("write %s: %v", res.Id.Name, err)
	}
	return out
}

func remove(t testing.TB, b storage.Backend, res *resourcepb.Resource) {
	t.Helper()
	if err := b.DeleteCAS(within(t), res.Id, res.Version); err != nil {
		t.Fatalf("delete %s: %v", res.Id.Name, err)
	}
}

// stored reads strongly; nil is nothing.
func stored(t testing.TB, b storage.Backend, res *resourcepb.Resource) *resourcepb.Resource {
	t.Helper()
	got, err := b.Read(within(t), storage.StrongConsistency, res.Id)
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil {
		t.Fatalf("read %s: %v", res.Id.Name, err)
	}
	return got
}

// watchAll watches all services from an empty snapshot, or after the one that is there.
func watchAll(t testing.TB, b storage.Backend) storage.Watch {
	t.Helper()
	w, err := b.WatchList(within(t), serviceType, tenancy, "")
	if err != nil {
		t.Fatalf("watch: %v", err)
	}
	t.Cleanup(w.Close)
	for {
		ev, err := w.Next(within(t))
		if err != nil {
			t.Fatalf("snapshot: %v", err)
		}
		if ev.GetEndOfSnapshot() != nil {
			return w
		}
	}
}

// what writes an event as text, so that lists of them compare: "+name version" or "-name version".
func what(ev *resourcepb.WatchEvent) string {
	if res := ev.GetUpsert().GetResource(); res != nil {
		return "+" + res.Id.Name + " " + res.Version
	}
	if res := ev.GetDelete().GetResource(); res != nil {
		return "-" + res.Id.Name + " " + res.Version
	}
	return fmt.Sprint(ev)
}

func upserted(res *resourcepb.Resource) string { return "+" + res.Id.Name + " " + res.Version }
func deleted(res *resourcepb.Resource) string  { return "-" + res.Id.Name + " " + res.Version }

// wantNext demands the next events of a watch.
func wantNext(t testing.TB, w storage.Watch, want ...string) {
	t.Helper()
	for i, one := range want {
		ev, err := w.Next(within(t))
		if err != nil {
			t.Fatalf("event %d, %s: %v", i, one, err)
		}
		if got := what(ev); got != one {
			t.Fatalf("event %d is %q, want %q", i, got, one)
		}
	}
}

// wantEnd demands that the next word of a watch is its last, for want of history.
func wantEnd(t testing.TB, w storage.Watch) {
	t.Helper()
	ev, err := w.Next(within(t))
	if !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
		t.Fatalf("next: %v, %v; want ErrWatchClosed with ErrCompacted", ev, err)
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	ctx := within(t)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for !ok() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain: %s", what)
		}
	}
}
