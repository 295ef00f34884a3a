package controller

import (
	"context"
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/driver/key"
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
	codec := typed.Messages[T]()
	return ReconcileFunc(func(ctx context.Context, rt Runtime, req Request) error {
		o, err := cachedObject(rt.Cache, codec, req.ID)
		if err != nil {
			return err
		}
		return reconcile(ctx, rt, TypedRequest[T]{req, o})
	})
}

// cachedObject returns the cached resource of an id, nil for none.
func cachedObject[T proto.Message](c Cache, codec *typed.Codec[T], id *resourcepb.ID) (*typed.Object[T], error) {
	var res *resourcepb.Resource
	var err error
	if fast, ok := c.(*cache); ok {
		var i *informer
		if i, err = fast.informerOf(id.GetType()); err == nil {
			if r := i.copy.Get(key.Of(id)); r != nil {
				res = withoutSharing(r.Value.res)
			}
		}
	} else {
		res, err = c.Get(id.GetType(), IDIndex, id)
	}
	if res == nil || err != nil {
		return nil, err
	}
	return decode(codec, res)
}

// decode returns the object of a resource.
func decode[T proto.Message](codec *typed.Codec[T], res *resourcepb.Resource) (*typed.Object[T], error) {
	o, err := codec.Object(res)
	if payload := (*typed.PayloadError)(nil); errors.As(err, &payload) {
		return nil, Terminal(err)
	}
	return o, err
}
