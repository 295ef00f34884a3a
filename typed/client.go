package typed

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Client reads and writes the resources of one type. It is safe for concurrent use. It wraps errors of the backend; test them with errors.Is.
type Client[T any] struct {
	backend storage.Backend
	typ     *resourcepb.Type
	codec   *Codec[T]
	tenancy *resourcepb.Tenancy // in place of nil
}

// New returns a client for resources with a payload of the protobuf message T, a pointer to a generated type. It does not close the backend.
func New[T proto.Message](b storage.Backend, typ *resourcepb.Type) *Client[T] {
	return newClient(b, typ, Messages[T]())
}

// NewJSON returns a client for resources with a payload of a Go value that encoding/json encodes as an object. The payload is stored as a
// google.protobuf.Struct. Its numbers are floating-point, so a write fails if an integer cannot be represented exactly. NewJSON does not close
// the backend.
func NewJSON[T any](b storage.Backend, typ *resourcepb.Type) *Client[T] {
	return newClient(b, typ, JSON[T]())
}

func newClient[T any](b storage.Backend, typ *resourcepb.Type, codec *Codec[T]) *Client[T] {
	return &Client[T]{backend: b, typ: proto.CloneOf(typ), codec: codec, tenancy: NewTenancy("default", "default")}
}

// WithTenancy returns a client of the same type and backend whose methods use a tenancy in place of nil. Without it, nil means the namespace
// "default" of the partition "default".
func (c *Client[T]) WithTenancy(tenancy *resourcepb.Tenancy) *Client[T] {
	out := *c
	out.tenancy = proto.CloneOf(tenancy)
	return &out
}

// tenancyOr returns a tenancy, the client's for nil.
func (c *Client[T]) tenancyOr(tenancy *resourcepb.Tenancy) *resourcepb.Tenancy {
	if tenancy == nil {
		return c.tenancy
	}
	return tenancy
}

// ID returns the id of a resource of the client's type, without a uid. A nil tenancy selects the client's.
func (c *Client[T]) ID(tenancy *resourcepb.Tenancy, name string) *resourcepb.ID {
	return &resourcepb.ID{Type: proto.CloneOf(c.typ), Tenancy: proto.CloneOf(c.tenancyOr(tenancy)), Name: name}
}

// checkID returns an error for an id of another type.
func (c *Client[T]) checkID(id *resourcepb.ID) error {
	if storage.UnversionedTypeFrom(id.GetType()) != storage.UnversionedTypeFrom(c.typ) {
		return fmt.Errorf("%w: %s does not have the client's type %s/%s", storage.ErrInvalid, idString(id), c.typ.GetGroup(), c.typ.GetKind())
	}
	return nil
}

// Get returns a resource. It fails with [storage.ErrNotFound] if the id has a uid and the stored resource has another uid.
func (c *Client[T]) Get(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*Object[T], error) {
	if err := c.checkID(id); err != nil {
		return nil, err
	}
	res, err := c.backend.Read(ctx, consistency, id)
	if err != nil {
		return nil, err
	}
	return c.codec.Object(res)
}

// List returns the resources of a tenancy with a name prefix, in the order of [storage.Backend]. Each tenancy unit may be "*". The list is one
// snapshot if the backend supports that. It is read in pages if the backend is a [storage.Pager].
//
// A resource that cannot be decoded yields a nil object and a [*PayloadError], and the list continues. Any other error ends the list.
//
// With selectors, the list has only the resources that all of them match. The database has no index of metadata, so the list still reads all resources
// of the tenancy with the prefix; package tables has indexes.
func (c *Client[T]) List(ctx context.Context, consistency storage.ReadConsistency, tenancy *resourcepb.Tenancy, prefix string, selectors ...Selector) iter.Seq2[*Object[T], error] {
	tenancy = c.tenancyOr(tenancy)
	return func(yield func(*Object[T], error) bool) {
		pager, paged := storage.As[storage.Pager](c.backend)
		page, name := storage.Page{}, storage.UnversionedTypeFrom(c.typ)
		for {
			var err error
			if paged {
				page, err = pager.ListPage(ctx, name, tenancy, prefix, storage.ListOptions{Consistency: consistency, Continue: page.Continue})
			} else {
				page.Resources, err = c.backend.List(ctx, consistency, name, tenancy, prefix)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for _, res := range page.Resources {
				if matchesAll(selectors, res) && !yield(c.codec.Object(res)) {
					return
				}
			}
			if page.Continue == "" {
				return
			}
		}
	}
}

// Create stores a new resource and returns the stored state. It assigns a uid if the id has none, and a generation. It fails with [ErrExists] if
// the resource exists.
//
// Create may be repeated if the id has a uid, for example after [storage.ErrInconsistent]: it succeeds if the resource with this uid and this content
// is stored. See also [Client.Apply].
func (c *Client[T]) Create(ctx context.Context, o Object[T]) (*Object[T], error) {
	if err := c.checkID(o.ID); err != nil {
		return nil, err
	}
	if o.Version != "" {
		return nil, fmt.Errorf("%w: create %s: the version must be empty for a new resource", storage.ErrInvalid, idString(o.ID))
	}
	o.ID = proto.CloneOf(o.ID)
	if o.ID.Uid == "" {
		o.ID.Uid = ulid.Make().String()
	}
	c.codec.Replace(nil, &o)
	stored, err := c.store(ctx, &o)
	if errors.Is(err, storage.ErrCASFailure) { // the uid is stored already
		if existing, readErr := c.Get(ctx, storage.StrongConsistency, o.ID); readErr == nil && c.codec.Same(existing, &o) {
			return existing, nil
		}
	}
	return stored, existsError(err)
}

// existsError returns the error of a creation.
func existsError(err error) error {
	if isConflict(err) {
		return fmt.Errorf("%w: %w", ErrExists, err)
	}
	return err
}

// isConflict reports whether another writer was faster. If the outcome of a write is unknown, the writer may have been the write itself.
func isConflict(err error) bool {
	return (errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid)) && !errors.Is(err, storage.ErrInconsistent)
}

// store writes an object at its version.
func (c *Client[T]) store(ctx context.Context, o *Object[T]) (*Object[T], error) {
	res, err := c.codec.Resource(o)
	if err != nil {
		return nil, err
	}
	stored, err := c.backend.WriteCAS(ctx, res)
	if err != nil {
		return nil, err
	}
	return c.codec.Object(stored)
}

// Update reads a resource, calls change with a copy, and writes the result. If another writer was faster, it repeats this until the context ends.
// It returns the stored resource. It writes nothing if change changes nothing, and returns the error of change.
//
// change cannot modify the uid, the name, the version or the generation. Use UpdateStatus for statuses.
func (c *Client[T]) Update(ctx context.Context, id *resourcepb.ID, change func(*Object[T]) error) (*Object[T], error) {
	return c.readModifyWrite(ctx, id, nil, c.contentOnly(change))
}

// Apply is Update for a resource that may be absent. Then change receives an object with an empty payload and no version, and Apply creates the
// result. If id has a uid and another one is stored, Apply fails with [ErrExists].
func (c *Client[T]) Apply(ctx context.Context, id *resourcepb.ID, change func(*Object[T]) error) (*Object[T], error) {
	return c.readModifyWrite(ctx, id, func() *Object[T] {
		o := &Object[T]{ID: proto.CloneOf(id), Data: c.codec.empty()}
		if o.ID.Uid == "" {
			o.ID.Uid = ulid.Make().String()
		}
		return o
	}, c.contentOnly(change))
}

// contentOnly returns a function that calls change and undoes its changes of the identity, the version and the statuses.
func (c *Client[T]) contentOnly(change func(*Object[T]) error) func(*Object[T]) error {
	return func(o *Object[T]) error {
		key, version, statuses := proto.CloneOf(o.ID), o.Version, c.codec.Copy(o).Status
		if err := change(o); err != nil {
			return err
		}
		if t := o.ID.GetType(); t != nil {
			key.Type.GroupVersion = t.GroupVersion
		}
		o.ID, o.Version, o.Status = key, version, statuses
		return nil
	}
}

// Renew writes a resource unchanged, so that its time to live starts again, and returns the stored state. Update and Apply write nothing if nothing
// changes, so they do not renew. Renew fails with [storage.ErrNotFound] if the resource was deleted, and with [storage.ErrInvalid] if it has no time
// to live.
func (c *Client[T]) Renew(ctx context.Context, id *resourcepb.ID) (*Object[T], error) {
	if err := c.checkID(id); err != nil {
		return nil, err
	}
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		o, err := c.Get(ctx, storage.StrongConsistency, id)
		if err != nil {
			return nil, err
		}
		if o.TTL == 0 {
			return nil, fmt.Errorf("%w: renew %s: the resource has no time to live", storage.ErrInvalid, idString(id))
		}
		stored, err := c.store(ctx, o)
		if !isConflict(err) {
			return stored, err
		}
		if err := wait(ctx, pause); err != nil {
			return nil, fmt.Errorf("renew %s: %w", idString(id), errors.Join(err, storage.ErrCASFailure))
		}
	}
}

// UpdateStatus is Update for the status under one key. change receives an empty status if none is stored. The generation stays the same, and the
// status's update time is set.
func (c *Client[T]) UpdateStatus(ctx context.Context, id *resourcepb.ID, key string, change func(o *Object[T], status *resourcepb.Status) error) (*Object[T], error) {
	return c.readModifyWrite(ctx, id, nil, func(o *Object[T]) error {
		status := proto.CloneOf(o.Status[key])
		if status == nil {
			status = &resourcepb.Status{}
		}
		if err := change(c.codec.Copy(o), status); err != nil {
			return err
		}
		if o.Status[key] == nil && proto.Equal(status, &resourcepb.Status{}) {
			return nil // the status is still absent
		}
		if o.Status == nil {
			o.Status = map[string]*resourcepb.Status{}
		}
		if !proto.Equal(o.Status[key], status) {
			status.UpdatedAt = timestamppb.Now()
			o.Status[key] = status
		}
		return nil
	})
}

// readModifyWrite reads, changes and writes a resource until no other writer is faster. It creates an absent resource from the result of initial,
// unless that is nil.
func (c *Client[T]) readModifyWrite(ctx context.Context, id *resourcepb.ID, initial func() *Object[T], change func(*Object[T]) error) (*Object[T], error) {
	if err := c.checkID(id); err != nil {
		return nil, err
	}
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		var after *Object[T]
		before, err := c.Get(ctx, storage.StrongConsistency, id)
		switch {
		case err == nil:
			after = c.codec.Copy(before)
		case initial != nil && errors.Is(err, storage.ErrNotFound):
			after = initial()
		default:
			return nil, err
		}
		if err := change(after); err != nil {
			return nil, err
		}
		if !c.codec.Replace(before, after) {
			return before, nil
		}
		stored, err := c.store(ctx, after)
		if before == nil && id.GetUid() != "" && errors.Is(err, storage.ErrWrongUid) {
			return nil, existsError(err)
		}
		if !isConflict(err) {
			return stored, err
		}
		if err := wait(ctx, pause); err != nil {
			return nil, fmt.Errorf("update %s: %w", idString(id), errors.Join(err, storage.ErrCASFailure))
		}
	}
}

// The pauses after a conflict. A random addition of up to one half is added to each.
const (
	minPause = time.Millisecond
	maxPause = 200 * time.Millisecond
)

// wait blocks for pause and a random addition. It returns the context's error if the context ends first.
func wait(ctx context.Context, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause + rand.N(pause/2)):
		return nil
	}
}

// Preconditions restrict a deletion. The zero value adds no restriction.
type Preconditions struct {
	// Version, if not "", must be the stored version. Otherwise Delete fails with [storage.ErrCASFailure].
	Version string
	// Uid, if not "", must be the stored uid. Another uid means that the resource is already deleted, so Delete succeeds.
	Uid string
}

// Delete deletes a resource. It succeeds if the resource is not stored.
func (c *Client[T]) Delete(ctx context.Context, id *resourcepb.ID, pre Preconditions) error {
	if err := c.checkID(id); err != nil {
		return err
	}
	id = proto.CloneOf(id)
	if pre.Uid != "" {
		if id.Uid != "" && id.Uid != pre.Uid {
			return fmt.Errorf("%w: delete %s: the uids of the id and of the precondition differ", storage.ErrInvalid, idString(id))
		}
		id.Uid = pre.Uid
	}
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		res, err := c.backend.Read(ctx, storage.StrongConsistency, id)
		if mismatch := (storage.GroupVersionMismatchError{}); errors.As(err, &mismatch) {
			res, err = mismatch.Stored, nil
		}
		if errors.Is(err, storage.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if pre.Version != "" && pre.Version != res.GetVersion() {
			return fmt.Errorf("delete %s: %w", idString(id), storage.ErrCASFailure)
		}
		err = c.backend.DeleteCAS(ctx, res.GetId(), res.GetVersion())
		if pre.Version != "" || !errors.Is(err, storage.ErrCASFailure) {
			return err
		}
		if err := wait(ctx, pause); err != nil {
			return fmt.Errorf("delete %s: %w", idString(id), errors.Join(err, storage.ErrCASFailure))
		}
	}
}
