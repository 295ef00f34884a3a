package controller

import (
	"context"
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// Kind reads and writes one type inside a reconcile. It is a variable of the program, and safe for concurrent use. Its methods that write fail with
// the status errors of the resource service.
type Kind[T proto.Message] struct {
	// Type is the type of the resources.
	Type  *resourcepb.Type
	codec *typed.Codec[T]
}

// NewKind returns the kind of a type whose payload is the message T.
func NewKind[T proto.Message](t *resourcepb.Type) Kind[T] {
	return Kind[T]{proto.CloneOf(t), typed.Messages[T]()}
}

// ID returns the id of a resource of the kind, without a uid.
func (k Kind[T]) ID(tenancy *resourcepb.Tenancy, name string) *resourcepb.ID {
	return &resourcepb.ID{Type: proto.CloneOf(k.Type), Tenancy: proto.CloneOf(tenancy), Name: name}
}

// Get returns a resource from the cache, nil for none, or if id has a uid and the cached resource has another one.
func (k Kind[T]) Get(rt Runtime, id *resourcepb.ID) (*typed.Object[T], error) {
	o, err := cachedObject(rt.Cache, k.codec, id)
	if o != nil && id.GetUid() != "" && id.GetUid() != o.ID.GetUid() {
		return nil, nil
	}
	return o, err
}

// List returns the cached resources that an index finds.
func (k Kind[T]) List(rt Runtime, index string, args ...any) ([]*typed.Object[T], error) {
	found, err := rt.Cache.ListIterator(k.Type, index, args...)
	if err != nil {
		return nil, err
	}
	var all []*typed.Object[T]
	for res := found.Next(); res != nil; res = found.Next() {
		o, err := decode(k.codec, res)
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// Owned returns the cached resources of an owner.
func (k Kind[T]) Owned(rt Runtime, owner *resourcepb.ID) ([]*typed.Object[T], error) {
	return k.List(rt, OwnerIndex, owner)
}

// Apply creates a resource, or updates it to the owner, metadata and data of o, and returns the stored object. It writes nothing if nothing differs
// from the cache. Metadata that is nil stays as stored, and so do the statuses and, unless o has them, the deletion mark and the finalizers.
//
// The write applies to the cached state: it fails with Aborted if another program has changed, created or deleted the resource meanwhile. Return the
// error; the reconcile is repeated.
func (k Kind[T]) Apply(ctx context.Context, rt Runtime, o *typed.Object[T]) (*typed.Object[T], error) {
	stored, err := cachedObject(rt.Cache, k.codec, o.ID)
	if err != nil {
		return nil, err
	}
	next := *o
	next.Version, next.Status = "", nil
	if stored != nil {
		next.ID, next.Version, next.Status = proto.CloneOf(stored.ID), stored.Version, stored.Status
		next.ID.Type = o.ID.GetType()
		next.Metadata = mergedMetadata(o.Metadata, stored.Metadata)
		if next.Owner == nil || next.Owner.GetUid() == "" && key.Of(next.Owner) == key.Of(stored.Owner) {
			next.Owner = stored.Owner
		}
		if !k.codec.Replace(stored, &next) {
			return stored, nil
		}
	}
	res, err := k.codec.Resource(&next)
	if err != nil {
		return nil, err
	}
	if stored == nil {
		res.Id = proto.CloneOf(res.Id)
		res.Id.Uid = ""
	}
	answer, err := rt.Client.Write(ctx, &resourcepb.WriteRequest{Resource: res, Create: stored == nil})
	if err != nil {
		return nil, err
	}
	return k.codec.Object(answer.GetResource())
}

// mergedMetadata returns wanted metadata with the marks of the stored one, or the stored one if none is wanted.
func mergedMetadata(wanted, stored map[string]string) map[string]string {
	if wanted == nil {
		return stored
	}
	wanted = maps.Clone(wanted)
	for _, mark := range []string{deletionKey, finalizersKey} {
		if _, given := wanted[mark]; !given && stored[mark] != "" {
			wanted[mark] = stored[mark]
		}
	}
	return wanted
}

// Delete deletes a resource, or marks it for deletion if it has finalizers. It succeeds if the resource is not stored. Without a uid in id it deletes
// the cached incarnation, and does nothing if there is none.
func (k Kind[T]) Delete(ctx context.Context, rt Runtime, id *resourcepb.ID) error {
	if id.GetUid() == "" {
		cached, err := rt.Cache.Get(k.Type, IDIndex, id)
		if cached == nil || err != nil {
			return err
		}
		id = cached.GetId()
	}
	_, err := rt.Client.Delete(ctx, &resourcepb.DeleteRequest{Id: id})
	return err
}
