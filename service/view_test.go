package service_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// albums is a registry of one type with the given hooks.
func albums(t *testing.T, particular registry.Type) *registry.Registry {
	t.Helper()
	particular.Type, particular.Proto, particular.Scope = albumType, &wrapperspb.StringValue{}, registry.ScopeNamespace
	types, err := registry.New(particular)
	if err != nil {
		t.Fatal(err)
	}
	return types
}

// guest is a caller that may read every namespace except one, and "*".
type guest struct{ denied bool }

func (g guest) OperatorRead() error {
	if g.denied {
		return registry.ErrDenied
	}
	return nil
}
func (guest) OperatorWrite() error { return registry.ErrDenied }

// guests authenticates every caller as a guest that may not read a namespace.
func guests(secret string) func(context.Context, string, *resourcepb.Tenancy) (registry.Caller, error) {
	return func(_ context.Context, _ string, tenancy *resourcepb.Tenancy) (registry.Caller, error) {
		return guest{denied: tenancy.GetNamespace() == secret}, nil
	}
}

// store writes a resource directly to the store.
func store(ctx context.Context, t *testing.T, b storage.Backend, res *resourcepb.Resource, namespace, version string) *resourcepb.Resource {
	t.Helper()
	res.Id.Type = proto.CloneOf(res.GetId().GetType())
	res.Id.Type.GroupVersion = version
	res.Id.Tenancy = &resourcepb.Tenancy{Partition: "default", Namespace: namespace}
	if res.GetId().GetUid() == "" {
		res.Id.Uid = "uid-" + res.GetId().GetName()
	}
	out, err := b.WriteCAS(ctx, res)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// readUntil returns descriptions of the events up to one of the named resource.
func readUntil(t *testing.T, w resourcegrpc.ResourceService_WatchListClient, last string) (seen []string) {
	t.Helper()
	for {
		ev, err := w.Recv()
		if err != nil {
			t.Fatal(seen, err)
		}
		name := ""
		switch {
		case ev.GetUpsert() != nil:
			name = ev.GetUpsert().GetResource().GetId().GetName()
			seen = append(seen, "+"+name)
		case ev.GetDelete() != nil:
			name = ev.GetDelete().GetResource().GetId().GetName()
			seen = append(seen, "-"+name)
		case ev.GetEndOfSnapshot() != nil:
			seen = append(seen, "end")
		}
		if name == last {
			return seen
		}
	}
}

// A watch of all namespaces hides the namespaces that its caller may not read.
func TestWatchesKeepNamespacesApart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	b := inmem.New(nil)
	defer b.Close()
	c := service.New(b, albums(t, registry.Type{}), &service.Options{Authenticate: guests("secret")}).Client()
	first := store(ctx, t, b, album("hidden", "1"), "secret", "v1")
	w, err := c.WatchList(ctx, &resourcepb.WatchListRequest{Type: albumType})
	if err != nil {
		t.Fatal(err)
	}
	store(ctx, t, b, first, "secret", "v1")
	store(ctx, t, b, album("new", "1"), "secret", "v1")
	store(ctx, t, b, album("shown", "1"), "open", "v1")
	if got, want := fmt.Sprint(readUntil(t, w, "shown")), "[end +shown]"; got != want {
		t.Errorf("the watch shows %s, expected %s", got, want)
	}
}

// A resource of an unregistered group version is not in a snapshot, and leaves the view of a watch once.
func TestUnregisteredVersionsLeaveViewOnce(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	b := inmem.New(nil)
	defer b.Close()
	c := service.New(b, albums(t, registry.Type{}), nil).Client()
	foreign := store(ctx, t, b, album("foreign", "1"), "open", "v2")
	known := store(ctx, t, b, album("known", "1"), "open", "v1")
	w, err := c.WatchList(ctx, &resourcepb.WatchListRequest{Type: albumType})
	if err != nil {
		t.Fatal(err)
	}
	store(ctx, t, b, foreign, "open", "v2")
	known = store(ctx, t, b, known, "open", "v2")
	known = store(ctx, t, b, known, "open", "v2")
	known = store(ctx, t, b, known, "open", "v1")
	known = store(ctx, t, b, known, "open", "v2")
	if err := b.DeleteCAS(ctx, known.GetId(), known.GetVersion()); err != nil {
		t.Fatal(err)
	}
	store(ctx, t, b, album("last", "1"), "open", "v1")
	if got, want := fmt.Sprint(readUntil(t, w, "last")), "[+known end -known +known -known +last]"; got != want {
		t.Errorf("the watch shows %s, expected %s", got, want)
	}
}
