package service_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// A write fails and stores nothing if Mutate changes a field that it must not change.
func TestMutateChangesForbiddenField(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for what, mutate := range map[string]func(*resourcepb.Resource){
		"id":      func(res *resourcepb.Resource) { res.Id.Name = "b" },
		"owner":   func(res *resourcepb.Resource) { res.Owner = res.GetId() },
		"version": func(res *resourcepb.Resource) { res.Version = "1" },
		"status":  func(res *resourcepb.Resource) { res.Status = map[string]*resourcepb.Status{"k": {}} },
	} {
		b := inmem.New(nil)
		defer b.Close()
		c := service.New(b, albums(t, registry.Type{Mutate: func(res *resourcepb.Resource) error { mutate(res); return nil }}), nil).Client()
		if out, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: album("a", "1")}); status.Code(err) != codes.Internal {
			t.Errorf("%s: %v, %v", what, out, err)
		}
		everywhere := &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
		all, err := b.List(ctx, storage.StrongConsistency, storage.UnversionedTypeFrom(albumType), everywhere, "")
		if len(all) > 0 || err != nil {
			t.Errorf("%s: stored are %v, %v", what, all, err)
		}
	}
}

// A caller that may not write the stored resource does not learn its version and its uid by trying.
func TestOverwriteForbiddenResource(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	b := inmem.New(nil)
	defer b.Close()
	c := service.New(b, albums(t, registry.Type{MayWrite: func(_ registry.Caller, res *resourcepb.Resource) error {
		if res.GetMetadata()["locked"] != "" {
			return fmt.Errorf("it is locked: %w", registry.ErrDenied)
		}
		return nil
	}}), nil).Client()
	res := album("a", "1")
	res.Metadata = map[string]string{"locked": "yes"}
	res = store(ctx, t, b, res, "default", "v1")
	for _, uid := range []string{"", "another", res.GetId().GetUid()} {
		for _, version := range []string{"", "another", res.GetVersion()} {
			tried := album("a", "2")
			tried.Id.Uid, tried.Version = uid, version
			if _, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: tried}); status.Code(err) != codes.PermissionDenied {
				t.Errorf("uid %q, version %q: %v", uid, version, err)
			}
		}
	}
}

// If a hook panics while a stream opens, the server continues and releases the stream.
func TestHooksThatPanic(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	opened := make(chan context.Context, 1)
	server := service.New(b, albums(t, registry.Type{}), &service.Options{
		Authenticate: func(ctx context.Context, _ string, _ *resourcepb.Tenancy) (registry.Caller, error) {
			opened <- ctx
			panic("a hook")
		},
	})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is swallowed")
			}
		}()
		_, _ = server.Client().WatchList(t.Context(), &resourcepb.WatchListRequest{Type: albumType})
	}()
	if err := (<-opened).Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("the stream's context is not done: %v", err)
	}
}
