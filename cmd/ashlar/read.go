package main

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// read reads a resource of any group version.
func read(ctx context.Context, backend storage.Backend, id *resourcepb.ID) (*resourcepb.Resource, error) {
	res, err := backend.Read(ctx, storage.StrongConsistency, id)
	var mismatch storage.GroupVersionMismatchError
	if errors.As(err, &mismatch) {
		return mismatch.Stored, nil
	}
	return res, err
}

// errLimit ends eachPage early.
var errLimit = errors.New("enough")

// eachResource calls do for the matching resources, in order, and page by page if the backend supports pages.
func eachResource(ctx context.Context, backend storage.Backend, typ storage.UnversionedType, f filter,
	do func(*resourcepb.Resource) error,
) error {
	remaining := f.limit
	deliver := func(resources []*resourcepb.Resource) error {
		for _, res := range resources {
			if err := do(res); err != nil {
				return err
			}
			if remaining--; remaining == 0 {
				return errLimit
			}
		}
		return nil
	}
	err := eachPage(ctx, backend, typ, f, deliver)
	if errors.Is(err, errLimit) {
		return nil
	}
	return err
}

func eachPage(ctx context.Context, backend storage.Backend, typ storage.UnversionedType, f filter,
	deliver func([]*resourcepb.Resource) error,
) error {
	pager, ok := storage.As[storage.Pager](backend)
	if !ok {
		resources, err := backend.List(ctx, storage.StrongConsistency, typ, f.proto(), f.prefix)
		if err != nil {
			return err
		}
		return deliver(resources)
	}
	opts := storage.ListOptions{Consistency: storage.StrongConsistency, Limit: f.limit}
	for {
		page, err := pager.ListPage(ctx, typ, f.proto(), f.prefix, opts)
		if err != nil {
			return err
		}
		if err := deliver(page.Resources); err != nil {
			return err
		}
		if opts.Continue = page.Continue; opts.Continue == "" {
			return nil
		}
	}
}
