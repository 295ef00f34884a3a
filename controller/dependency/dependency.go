// Package dependency has mappers for controllers: functions that name the managed resources that a changed resource concerns.
package dependency

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// MapOwner requests the owner of a resource.
func MapOwner(_ context.Context, _ controller.Runtime, res *resourcepb.Resource) ([]controller.Request, error) {
	if res.GetOwner() == nil {
		return nil, nil
	}
	return []controller.Request{{ID: res.GetOwner()}}, nil
}

// MapOwnerFiltered requests the owner of a resource if it has a type.
func MapOwnerFiltered(t *resourcepb.Type) controller.DependencyMapper {
	return func(ctx context.Context, rt controller.Runtime, res *resourcepb.Resource) ([]controller.Request, error) {
		if storage.UnversionedTypeFrom(res.GetOwner().GetType()) != storage.UnversionedTypeFrom(t) {
			return nil, nil
		}
		return MapOwner(ctx, rt, res)
	}
}

// ReplaceType requests the resource of another type with the name and the tenancy of the changed one.
func ReplaceType(t *resourcepb.Type) controller.DependencyMapper {
	return func(_ context.Context, _ controller.Runtime, res *resourcepb.Resource) ([]controller.Request, error) {
		id := &resourcepb.ID{Type: t, Tenancy: res.GetId().GetTenancy(), Name: res.GetId().GetName()}
		return []controller.Request{{ID: id}}, nil
	}
}

// CacheGetMapper requests the first resource that an index of a cached type finds by the id of the changed resource.
func CacheGetMapper(t *resourcepb.Type, index string) controller.DependencyMapper {
	return func(_ context.Context, rt controller.Runtime, res *resourcepb.Resource) ([]controller.Request, error) {
		found, err := rt.Cache.Get(t, index, res.GetId())
		if found == nil || err != nil {
			return nil, err
		}
		return []controller.Request{{ID: found.GetId()}}, nil
	}
}

// CacheListMapper requests the resources that an index of a cached type finds by the id of the changed resource, such as a [controller.RefIndex].
func CacheListMapper(t *resourcepb.Type, index string) controller.DependencyMapper {
	return CacheListTransform(t, index, func(res *resourcepb.Resource) *resourcepb.ID { return res.GetId() })
}

// CacheListTransform is CacheListMapper with a function that returns the id to request for a found resource, nil for none.
func CacheListTransform(t *resourcepb.Type, index string, id func(*resourcepb.Resource) *resourcepb.ID) controller.DependencyMapper {
	return func(_ context.Context, rt controller.Runtime, res *resourcepb.Resource) ([]controller.Request, error) {
		found, err := rt.Cache.ListIterator(t, index, res.GetId())
		return requests(found, err, id)
	}
}

// CacheParentsMapper requests the resources of a cached type whose index key is a prefix of the key of the changed resource.
func CacheParentsMapper(t *resourcepb.Type, index string) controller.DependencyMapper {
	return func(_ context.Context, rt controller.Runtime, res *resourcepb.Resource) ([]controller.Request, error) {
		found, err := rt.Cache.ParentsIterator(t, index, res.GetId())
		return requests(found, err, func(res *resourcepb.Resource) *resourcepb.ID { return res.GetId() })
	}
}

// requests returns a request for each found resource.
func requests(found controller.ResourceIterator, err error, id func(*resourcepb.Resource) *resourcepb.ID) (all []controller.Request, _ error) {
	if err != nil {
		return nil, err
	}
	for res := found.Next(); res != nil; res = found.Next() {
		if id := id(res); id != nil {
			all = append(all, controller.Request{ID: id})
		}
	}
	return all, nil
}

// MultiMapper calls several mappers and returns the requests of all. It fails if one of them fails.
func MultiMapper(mappers ...controller.DependencyMapper) controller.DependencyMapper {
	return func(ctx context.Context, rt controller.Runtime, res *resourcepb.Resource) (all []controller.Request, _ error) {
		for _, mapper := range mappers {
			some, err := mapper(ctx, rt, res)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
		return all, nil
	}
}

// WrapAndReplaceType calls a mapper, and requests resources of another type with the names and tenancies of its requests.
func WrapAndReplaceType(t *resourcepb.Type, mapper controller.DependencyMapper) controller.DependencyMapper {
	return func(ctx context.Context, rt controller.Runtime, res *resourcepb.Resource) ([]controller.Request, error) {
		all, err := mapper(ctx, rt, res)
		for i, r := range all {
			all[i].ID = &resourcepb.ID{Type: t, Tenancy: r.ID.GetTenancy(), Name: r.ID.GetName()}
		}
		return all, err
	}
}

// MapDecoded returns a mapper that gets the decoded resource. A resource that cannot be decoded concerns no other one.
func MapDecoded[T proto.Message](mapper func(context.Context, controller.Runtime, *typed.Object[T]) ([]controller.Request, error)) controller.DependencyMapper {
	codec := typed.Messages[T]()
	return func(ctx context.Context, rt controller.Runtime, res *resourcepb.Resource) ([]controller.Request, error) {
		o, err := codec.Object(res)
		if err != nil {
			return nil, nil
		}
		return mapper(ctx, rt, o)
	}
}
