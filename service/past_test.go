package service_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// A historical page that takes several reads of the store shows one revision, whatever is written in between.
func TestListAtPagesHaveOneRevision(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	b := inmem.New(nil)
	defer b.Close()
	const hidden = 1500
	var late func()
	types := albums(t, registry.Type{MayRead: func(_ registry.Caller, id *resourcepb.ID, _ *resourcepb.Resource) error {
		if late != nil {
			late()
		}
		if strings.HasPrefix(id.GetName(), "hidden") {
			return registry.ErrDenied
		}
		return nil
	}})
	for i := range hidden {
		store(ctx, t, b, album(fmt.Sprintf("hidden-%04d", i), "1"), "here", "v1")
	}
	last := store(ctx, t, b, album("last", "1"), "here", "v1")
	late = func() {
		late = nil
		store(ctx, t, b, album("later", "1"), "here", "v1")
	}
	h := service.New(b, types, nil).History()
	page, err := h.ListAt(ctx, &resourcepb.ListAtRequest{Type: albumType, Tenancy: last.GetId().GetTenancy()})
	if err != nil || len(page.GetRecords()) != 1 || !proto.Equal(page.GetRecords()[0].GetResource(), last) || page.GetContinue() != "" {
		t.Errorf("the page is %v: %v", page, err)
	}
}

// A historical page has a maximum size in bytes, so that all clients can receive it.
func TestListAtPagesAreBounded(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	b := inmem.New(nil)
	defer b.Close()
	const large = 12
	for i := range large {
		res := album(fmt.Sprintf("a%02d", i), "1")
		res.Metadata = map[string]string{"large": strings.Repeat("x", 400<<10)}
		store(ctx, t, b, res, "here", "v1")
	}
	h := service.New(b, albums(t, registry.Type{}), nil).History()
	req := &resourcepb.ListAtRequest{Type: albumType, Tenancy: &resourcepb.Tenancy{Partition: "*", Namespace: "*"}}
	got := 0
	for {
		page, err := h.ListAt(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		if size := proto.Size(page); size > 2<<20 {
			t.Errorf("a page has %d bytes", size)
		}
		got += len(page.GetRecords())
		if page.GetContinue() == "" {
			break
		}
		req.Revision, req.Continue = page.GetRevision(), page.GetContinue()
	}
	if got != large {
		t.Errorf("the pages have %d resources, not %d", got, large)
	}
}

// A stream of changes ends when its caller loses its permission, and when the server drains.
func TestChangesEndEarly(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	b := inmem.New(nil)
	defer b.Close()
	for i := range 3 {
		store(ctx, t, b, album(fmt.Sprint("a", i), "1"), "here", "v1")
	}
	known := true
	options := &service.Options{
		Recheck: time.Nanosecond,
		Authenticate: func(context.Context, string, *resourcepb.Tenancy) (registry.Caller, error) {
			if !known {
				return nil, service.ErrUnauthenticated
			}
			return operator{}, nil
		},
	}
	req := &resourcepb.ChangesRequest{Type: albumType, Tenancy: &resourcepb.Tenancy{Partition: "*", Namespace: "*"}, After: 1}
	for name, tc := range map[string]struct {
		happens func(*service.Server)
		want    codes.Code
	}{
		"forgotten": {func(*service.Server) { known = false }, codes.Unauthenticated},
		"draining":  {func(s *service.Server) { s.Drain() }, codes.Unavailable},
	} {
		known = true
		s := service.New(b, albums(t, registry.Type{}), options)
		stream, err := s.History().Changes(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		tc.happens(s)
		if _, err := stream.Recv(); status.Code(err) != tc.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// noHistory is a store that does not number its changes.
type noHistory struct{ storage.Backend }

// A caller that may not list does not learn whether a store has a history.
func TestNoHistory(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	req := &resourcepb.RevisionsRequest{Type: albumType, Tenancy: &resourcepb.Tenancy{}}
	for want, types := range map[codes.Code]*registry.Registry{
		codes.Unimplemented: registry.NewOpen(registry.Type{}),
		codes.PermissionDenied: registry.NewOpen(registry.Type{
			MayList: func(registry.Caller, *resourcepb.Type, *resourcepb.Tenancy) error { return registry.ErrDenied },
		}),
	} {
		if _, err := service.New(noHistory{b}, types, nil).History().Revisions(t.Context(), req); status.Code(err) != want {
			t.Errorf("expected %v, got %v", want, err)
		}
	}
}
