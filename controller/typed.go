package controller

import (
	"context"
	"errors"
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// TypedRequest is a request with the cached resource.
type TypedRequest[T proto.Message] struct {
	Request
	// Object is the resource in the cache, nil if there is none. It belongs to the reconciler.
	Object *typed.Object[T]
}

// Typed returns a reconciler that gets the cached resource, decoded. A resource that cannot be decoded is a [Terminal] error: it is reconciled when
// it changes.
func Typed[T proto.Message](reconcile func(ctx context.Context, rt Runtime, req TypedRequest[T]) error) Reconciler {
	return typedReconciler[T]{reconcile, typed.Messages[T]()}
}

// rowReconciler is a reconciler that gets the cached resource from its caller; nil for none.
type rowReconciler interface {
	reconcileRow(ctx context.Context, rt Runtime, req Request, r *row) error
}

type typedReconciler[T proto.Message] struct {
	reconcile func(context.Context, Runtime, TypedRequest[T]) error
	codec     *typed.Codec[T]
}

// Reconcile implements Reconciler, so that other reconcilers can wrap a typed one.
func (t typedReconciler[T]) Reconcile(ctx context.Context, rt Runtime, req Request) error {
	o, err := cachedObject(rt.Cache, t.codec, req.ID)
	if err != nil {
		return err
	}
	return t.reconcile(ctx, rt, TypedRequest[T]{req, o})
}

// reconcileRow implements rowReconciler.
func (t typedReconciler[T]) reconcileRow(ctx context.Context, rt Runtime, req Request, r *row) error {
	o, err := objectOf(t.codec, r)
	if err != nil {
		return err
	}
	return t.reconcile(ctx, rt, TypedRequest[T]{req, o})
}

// cachedObject returns the cached resource of an id, nil for none.
func cachedObject[T proto.Message](c Cache, codec *typed.Codec[T], id *resourcepb.ID) (*typed.Object[T], error) {
	if fast, ok := c.(*cache); ok {
		i, err := fast.informerOf(id.GetType())
		if err != nil {
			return nil, err
		}
		return objectOf(codec, i.copy.Get(key.Of(id)))
	}
	res, err := c.Get(id.GetType(), IDIndex, id)
	if res == nil || err != nil {
		return nil, err
	}
	return decode(codec, res)
}

// objectOf returns the object of a row, nil for none. The object and the row share the encoded payload and unknown fields, which are
// never modified.
func objectOf[T proto.Message](c *typed.Codec[T], r *row) (*typed.Object[T], error) {
	if r == nil {
		return nil, nil
	}
	o, err := c.Object(r.Value.res)
	if err != nil {
		return decode(c, withoutSharing(r.Value.res)) // the error has the id
	}
	o.ID, o.Owner = codec.CloneID(o.ID), codec.CloneID(o.Owner)
	o.Metadata, o.Status = maps.Clone(o.Metadata), clonedStatus(o.Status)
	return o, nil
}

// decode returns the object of a resource.
func decode[T proto.Message](codec *typed.Codec[T], res *resourcepb.Resource) (*typed.Object[T], error) {
	o, err := codec.Object(res)
	if payload := (*typed.PayloadError)(nil); errors.As(err, &payload) {
		return nil, Terminal(err)
	}
	return o, err
}
