package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// Every call that changes a resource is recorded once, with its result: also deletions by the last finalizer and by the reaper, refused calls,
// and calls whose hook panics.
func TestAudit(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	types, err := registry.New(registry.Type{
		Type: albumType, Proto: &wrapperspb.StringValue{}, Scope: registry.ScopeNamespace,
		Validate: func(res *resourcepb.Resource) error {
			if res.GetMetadata()["panic"] != "" {
				panic("the hook fails")
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var records []string
	s := service.New(b, types, &service.Options{
		Audit: func(_ context.Context, m *service.Mutation) {
			change := "nothing"
			switch {
			case m.Deleted:
				change = "deleted"
			case m.Before == nil && m.After != nil:
				change = "created"
			case m.After != nil && m.Before.GetVersion() != m.After.GetVersion():
				change = "changed"
			}
			records = append(records, fmt.Sprint(m.Method, " ", m.ID.GetName(), " ", change, " ", status.Code(m.Err)))
		},
		Author: func(registry.Caller) string { return "alice" },
	})
	c := s.Client()
	ctx := t.Context()
	res := album("a", "one")
	res.Metadata, res.Author = map[string]string{"finalizers": "x"}, "mallory"
	written, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: res})
	if err != nil || written.GetResource().GetAuthor() != "alice" {
		t.Fatal(written, err)
	}
	id := written.GetResource().GetId()
	report := &resourcepb.Status{ObservedGeneration: written.GetResource().GetGeneration()}
	if _, err := c.WriteStatus(ctx, &resourcepb.WriteStatusRequest{Id: id, Key: "k", Status: report}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(ctx, &resourcepb.DeleteRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	marked, err := c.Read(ctx, &resourcepb.ReadRequest{Id: id})
	if err != nil {
		t.Fatal(err)
	}
	last := marked.GetResource()
	delete(last.GetMetadata(), "finalizers")
	if _, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: last}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: last}); status.Code(err) != codes.FailedPrecondition {
		t.Fatal(err)
	}
	if _, err := c.Delete(ctx, &resourcepb.DeleteRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	child := album("b", "two")
	child.Owner = id
	if written, err = c.Write(ctx, &resourcepb.WriteRequest{Resource: child}); err != nil {
		t.Fatal(err)
	}
	if err := s.Reap(ctx, written.GetResource().GetId(), id); err != nil {
		t.Fatal(err)
	}
	broken := album("c", "three")
	broken.Metadata = map[string]string{"panic": "yes"}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of a hook was swallowed")
			}
		}()
		_, _ = c.Write(ctx, &resourcepb.WriteRequest{Resource: broken})
	}()
	want := []string{
		"Write a created OK", "WriteStatus a changed OK", "Delete a changed OK", "Write a deleted OK", "Write a nothing FailedPrecondition",
		"Delete a nothing OK", "Write b created OK", "Reap b deleted OK", "Write c nothing Internal",
	}
	if !slices.Equal(records, want) {
		t.Errorf("recorded %q, expected %q", records, want)
	}
}

// A deletion by the server itself whose outcome is unknown is recorded as such.
func TestAuditOfUncertainDeletion(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	defer b.Close()
	ctx := t.Context()
	open := registry.NewOpen(registry.Type{})
	owner, err := service.New(b, open, nil).Client().Write(ctx, &resourcepb.WriteRequest{Resource: album("owner", "one")})
	if err != nil {
		t.Fatal(err)
	}
	owned := album("owned", "two")
	owned.Owner = owner.GetResource().GetId()
	child, err := service.New(b, open, nil).Client().Write(ctx, &resourcepb.WriteRequest{Resource: owned})
	if err != nil {
		t.Fatal(err)
	}
	var records []string
	s := service.New(uncertain{b, context.DeadlineExceeded}, open, &service.Options{Audit: func(_ context.Context, m *service.Mutation) {
		records = append(records, fmt.Sprint(m.Method, " ", m.Deleted, " ", status.Code(m.Err)))
	}})
	id := child.GetResource().GetId()
	if err := s.Expire(ctx, id, child.GetResource().GetVersion()); !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("expire: %v", err)
	}
	if err := s.Expire(ctx, id, "old"); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("expire at an old version: %v", err)
	}
	if err := s.Reap(ctx, id, owned.GetOwner()); !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("reap: %v", err)
	}
	if want := []string{"Expire false Unavailable", "Expire false Aborted", "Reap false Unavailable"}; !slices.Equal(records, want) {
		t.Errorf("recorded %q, expected %q", records, want)
	}
}
