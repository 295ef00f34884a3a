//go:build integration

package etcd_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

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

// sized returns a service with a payload of so many bytes.
func sized(name string, bytes int) *resourcepb.Resource {
	res := service(name)
	res.Data = &anypb.Any{TypeUrl: "example.com/Blob", Value: []byte(strings.Repeat("x", bytes))}
	return res
}

// at returns a copy of res that replaces the given version.
func at(res *resourcepb.Resource, version string) *resourcepb.Resource {
	out := service(res.Id.Name)
	out.Id.Uid, out.Version = res.Id.Uid, version
	return out
}

// open opens a store and closes it at the end of the test.
func open(t testing.TB, rawURL string) *etcd.Backend {
	t.Helper()
	b, err := etcd.Open(fixture.Context(t), parsed(t, rawURL))
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

// openThrough opens a store with a client that has these dial options, to observe or change requests and responses.
func openThrough(t testing.TB, server *env.EtcdServer, options ...grpc.DialOption) *etcd.Backend {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint}, Logger: zap.NewNop(), DialOptions: options})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	b, err := etcd.New(fixture.Context(t), client, &etcd.Options{Prefix: server.Prefix(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// through returns the URL of a store with another server address.
func through(url, from, to string) string { return strings.Replace(url, from, to, 1) }

// eventText formats an event for comparison: "+name version" or "-name version".
func eventText(ev *resourcepb.WatchEvent) string {
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

// wantNext checks that a watch returns the wanted events next.
func wantNext(t testing.TB, w storage.Watch, want ...string) {
	t.Helper()
	for i, text := range want {
		ev, err := w.Next(fixture.Context(t))
		if err != nil {
			t.Fatalf("Next returned %v, want event %d, %q", err, i, text)
		}
		if got := eventText(ev); got != text {
			t.Fatalf("event %d is %q, want %q", i, got, text)
		}
	}
}

// wantEnd requires that the watch ends because history is compacted.
func wantEnd(t testing.TB, w storage.Watch) {
	t.Helper()
	ev, err := w.Next(fixture.Context(t))
	if !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
		t.Fatalf("next: %v, %v; want ErrWatchClosed with ErrCompacted", ev, err)
	}
}
