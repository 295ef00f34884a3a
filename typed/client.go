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

// Client reads and writes the resources of one type. All its methods may be called from any number of goroutines. Errors of the backend
// come wrapped: test them with errors.Is.
type Client[T any] struct {
	backend storage.Backend
	typ     *resourcepb.Type
	codec   *Codec[T]
}

// New returns a client for resources whose payload is the protobuf message T, a pointer to a generated type. The backend stays the
// caller's.
func New[T proto.Message](b storage.Backend, typ *resourcepb.Type) *Client[T] {
	return &Client[T]{backend: b, typ: proto.CloneOf(typ), codec: Messages[T]()}
}

// NewJSON returns a client for resources whose payload is a Go value that encoding/json writes as an object. It is stored as a
// google.protobuf.Struct, whose numbers are floating-point ones: a value with an integer that these cannot hold is refused. The backend
// stays the caller's.
func NewJSON[T any](b storage.Backend, typ *resourcepb.Type) *Client[T] {
	return &Client[T]{backend: b, typ: proto.CloneOf(typ), codec: JSON[T]()}
}

// ID returns the id of a resource of the client's type, without a uid.
func (c *Client[T]) ID(tenancy *resourcepb.Tenancy, name string) *resourcepb.ID {
	return &resourcepb.ID{Type: proto.CloneOf(c.typ), Tenancy: proto.CloneOf(tenancy), Name: name}
}

// Get returns a resource. If the id has a uid, another incarnation is [storage.ErrNotFound].
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

// checkID refuses an id of another type.
func (c *Client[T]) checkID(id *resourcepb.ID) error {
	if storage.UnversionedTypeFrom(id.GetType()) != storage.UnversionedTypeFrom(c.typ) {
		return fmt.Errorf("%w: %s is not of the client's type %s/%s", storage.ErrInvalid, idString(id), c.typ.GetGroup(), c.typ.GetKind())
	}
	return nil
}

// List returns the resources of a tenancy, each unit of which may be "*", whose names begin with a prefix, in the order of
// [storage.Backend]. All are of one snapshot where the backend can hold one. They are read in pages where the backend is a [storage.Pager].
//
// What cannot be decoded comes as a [*PayloadError], without an object, and the list goes on. Any other error is its end.
func (c *Client[T]) List(ctx context.Context, consistency storage.ReadConsistency, tenancy *resourcepb.Tenancy, prefix string) iter.Seq2[*Object[T], error] {
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
				if !yield(c.codec.Object(res)) {
					return
				}
			}
			if page.Continue == "" {
				return
			}
		}
	}
}

// Create stores a new resource, and returns it as it was stored. It makes the uid where there is none, and the generation. What exists
// already is [storage.ErrCASFailure] or [storage.ErrWrongUid].
func (c *Client[T]) Create(ctx context.Context, o Object[T]) (*Object[T], error) {
	if err := c.checkID(o.ID); err != nil {
		return nil, err
	}
	if o.Version != "" {
		return nil, fmt.Errorf("%w: create %s: it has a version, so it exists", storage.ErrInvalid, idString(o.ID))
	}
	o.ID = proto.CloneOf(o.ID)
	if o.ID.Uid == "" {
		o.ID.Uid = ulid.Make().String()
	}
	o.Generation = ulid.Make().String()
	return c.store(ctx, &o)
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

// Update reads a resource, has change change it, and writes it if no other writer was faster; else it does so again, until the context is
// over. It returns the resource as it is stored. change is called with a new copy each time; its error ends Update, which returns it. If it
// changed nothing, nothing is written. It cannot change the uid, the name, the version or the generation, and statuses are for
// UpdateStatus.
func (c *Client[T]) Update(ctx context.Context, id *resourcepb.ID, change func(*Object[T]) error) (*Object[T], error) {
	return c.readModifyWrite(ctx, id, func(o *Object[T]) error {
		key, version, statuses := proto.CloneOf(o.ID), o.Version, c.codec.Copy(o).Status
		if err := change(o); err != nil {
			return err
		}
		if t := o.ID.GetType(); t != nil {
			key.Type.GroupVersion = t.GroupVersion
		}
		o.ID, o.Version, o.Status = key, version, statuses
		return nil
	}, func(o *Object[T]) { o.Generation = ulid.Make().String() })
}

// UpdateStatus is Update for the status under one key, which is an empty one if there was none. The generation stays, and the time of the
// update is set.
func (c *Client[T]) UpdateStatus(ctx context.Context, id *resourcepb.ID, key string, change func(o *Object[T], status *resourcepb.Status) error) (*Object[T], error) {
	return c.readModifyWrite(ctx, id, func(o *Object[T]) error {
		status := proto.CloneOf(o.Status[key])
		if status == nil {
			status = &resourcepb.Status{}
		}
		if err := change(c.codec.Copy(o), status); err != nil {
			return err
		}
		if o.Status[key] == nil && proto.Equal(status, &resourcepb.Status{}) {
			return nil // there is none still
		}
		if o.Status == nil {
			o.Status = map[string]*resourcepb.Status{}
		}
		o.Status[key] = status
		return nil
	}, func(o *Object[T]) { o.Status[key].UpdatedAt = timestamppb.Now() })
}

// readModifyWrite reads, changes and writes until no other writer was faster. stamp is called before what was changed is written.
func (c *Client[T]) readModifyWrite(ctx context.Context, id *resourcepb.ID, change func(*Object[T]) error, stamp func(*Object[T])) (*Object[T], error) {
	if err := c.checkID(id); err != nil {
		return nil, err
	}
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		before, err := c.Get(ctx, storage.StrongConsistency, id)
		if err != nil {
			return nil, err
		}
		after := c.codec.Copy(before)
		if err := change(after); err != nil {
			return nil, err
		}
		if c.codec.Same(before, after) {
			return before, nil
		}
		stamp(after)
		stored, err := c.store(ctx, after)
		if !errors.Is(err, storage.ErrCASFailure) && !(errors.Is(err, storage.ErrWrongUid) && id.GetUid() == "") {
			return stored, err
		}
		if err := wait(ctx, pause); err != nil {
			return nil, fmt.Errorf("update %s: %w", idString(id), errors.Join(err, storage.ErrCASFailure))
		}
	}
}

// The pauses between two tries of a write that another one overtook; each is up to half as long again.
const (
	minPause = time.Millisecond
	maxPause = 200 * time.Millisecond
)

// wait waits for pause, or returns the error of a context that is over before.
func wait(ctx context.Context, pause time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause + rand.N(pause/2)):
		return nil
	}
}

// Preconditions restrict a deletion. The zero value restricts nothing.
type Preconditions struct {
	// Version has to be the one stored, unless it is "": else nothing is deleted, and the error is [storage.ErrCASFailure].
	Version string
	// Uid has to be the one stored, unless it is "". Another one means that the resource is gone already.
	Uid string
}

// Delete deletes a resource. What is not stored is gone already, which is success.
func (c *Client[T]) Delete(ctx context.Context, id *resourcepb.ID, only Preconditions) error {
	if err := c.checkID(id); err != nil {
		return err
	}
	id = proto.CloneOf(id)
	if only.Uid != "" {
		if id.Uid != "" && id.Uid != only.Uid {
			return fmt.Errorf("%w: delete %s: the id has another uid than the precondition", storage.ErrInvalid, idString(id))
		}
		id.Uid = only.Uid
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
		if only.Version != "" && only.Version != res.GetVersion() {
			return fmt.Errorf("delete %s: %w", idString(id), storage.ErrCASFailure)
		}
		err = c.backend.DeleteCAS(ctx, res.GetId(), res.GetVersion())
		if only.Version != "" || !errors.Is(err, storage.ErrCASFailure) {
			return err
		}
		if err := wait(ctx, pause); err != nil {
			return fmt.Errorf("delete %s: %w", idString(id), errors.Join(err, storage.ErrCASFailure))
		}
	}
}
