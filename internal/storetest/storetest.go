package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Patience is how long a test waits for what has to happen, on a machine however busy.
const Patience = 2 * time.Minute

// The type and tenancy of every Resource, and the filter that matches everything.
var (
	Type         = storage.UnversionedType{Group: "test", Kind: "Thing"}
	Tenancy      = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
	AllTypes     = storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
	AllTenancies = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
)

// Context returns a context that ends with the test, or when its patience does.
func Context(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), Patience)
	t.Cleanup(cancel)
	return ctx
}

// ID returns the id of a thing of this name, with a uid that follows from the name.
func ID(name string) *resourcepb.ID {
	return &resourcepb.ID{
		Uid: "uid-" + name, Name: name,
		Type:    &resourcepb.Type{Group: Type.Group, GroupVersion: "v1", Kind: Type.Kind},
		Tenancy: &resourcepb.Tenancy{Partition: Tenancy.Partition, Namespace: Tenancy.Namespace},
	}
}

// Resource returns a thing of this name that was never written.
func Resource(name, payload string) *resourcepb.Resource {
	return &resourcepb.Resource{Id: ID(name), Data: &anypb.Any{TypeUrl: "example.com/Thing", Value: []byte(payload)}}
}

// Open opens a store, which is closed with the test.
func Open(t testing.TB, storeURL string) storage.Backend {
	t.Helper()
	b, err := storage.Open(Context(t), storeURL)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return b
}

// Write writes a resource over the version that it names and returns what was stored.
func Write(t testing.TB, b storage.Backend, res *resourcepb.Resource) *resourcepb.Resource {
	t.Helper()
	stored, err := b.WriteCAS(Context(t), res)
	if err != nil {
		t.Fatalf("write %s: %v", res.GetId().GetName(), err)
	}
	return stored
}

// Remove deletes a resource at its version.
func Remove(t testing.TB, b storage.Backend, res *resourcepb.Resource) {
	t.Helper()
	if err := b.DeleteCAS(Context(t), res.GetId(), res.GetVersion()); err != nil {
		t.Fatalf("delete %s: %v", res.GetId().GetName(), err)
	}
}

// Stored reads strongly what is stored under an id, whatever its uid; nil is nothing.
func Stored(t testing.TB, b storage.Backend, id *resourcepb.ID) *resourcepb.Resource {
	t.Helper()
	anyLife := &resourcepb.ID{Type: id.GetType(), Tenancy: id.GetTenancy(), Name: id.GetName()}
	res, err := b.Read(Context(t), storage.StrongConsistency, anyLife)
	if errors.Is(err, storage.ErrNotFound) {
		return nil
	}
	if err != nil {
		t.Fatalf("read %s: %v", id.GetName(), err)
	}
	return res
}
