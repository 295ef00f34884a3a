package conformance

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// halves lists the first half of the names, and then the second.
type halves struct{ *handle }

func (b halves) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	first, err := b.handle.List(ctx, c, typ, tenancy, prefix)
	if err != nil {
		return nil, err
	}
	b.handle.mu.Lock()
	b.pause()
	b.handle.mu.Unlock()
	second, err := b.handle.List(ctx, c, typ, tenancy, prefix)
	early := func(res *resourcepb.Resource) bool { return res.Id.Name < "faulty-key-04" }
	late := func(res *resourcepb.Resource) bool { return !early(res) }
	return append(slices.DeleteFunc(first, late), slices.DeleteFunc(second, early)...), err
}

// presentPages counts its way to the next page in a list that may have changed.
type presentPages struct{ *handle }

func (b presentPages) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string, opts storage.ListOptions) (storage.Page, error) {
	list, err := b.List(ctx, opts.Consistency, typ, tenancy, prefix)
	if err != nil {
		return storage.Page{}, err
	}
	first, _ := strconv.Atoi(opts.Continue)
	first = min(first, len(list))
	page := storage.Page{Resources: list[first:min(first+opts.Limit, len(list))], Cursor: "the same"}
	if first+opts.Limit < len(list) {
		page.Continue = strconv.Itoa(first + opts.Limit)
	}
	return page, nil
}

// pageCursors says where the store is at each page, instead of where the listing is.
type pageCursors struct{ *handle }

func (b pageCursors) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string, opts storage.ListOptions) (storage.Page, error) {
	page, err := b.handle.ListPage(ctx, typ, tenancy, prefix, opts)
	b.handle.mu.Lock()
	defer b.handle.mu.Unlock()
	page.Cursor = b.cursor(len(b.log))
	return page, err
}

// forgetful leaves out the last child in the first answer for an owner.
type forgetful struct {
	*handle
	mu    sync.Mutex
	asked map[string]bool
}

func (b *forgetful) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	ids, err := b.handle.OwnerReferences(ctx, id)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asked == nil {
		b.asked = make(map[string]bool)
	}
	if again := b.asked[id.GetUid()]; !again && len(ids) > 0 {
		if ids = ids[:len(ids)-1]; len(ids) == 0 {
			ids = nil
		}
	}
	b.asked[id.GetUid()] = true
	return ids, err
}

// stubborn does a write whose context ends on the way, and then says that it did not.
type stubborn struct{ *handle }

func (b stubborn) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	stored, err := b.handle.WriteCAS(context.WithoutCancel(ctx), res)
	if res.GetVersion() != "" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return stored, err
}

// emptyUnits takes an empty partition for all of them.
type emptyUnits struct{ *handle }

func (b emptyUnits) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	if tenancy != nil && tenancy.Partition == "" {
		tenancy = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: tenancy.Namespace}
	}
	return b.handle.List(ctx, c, typ, tenancy, prefix)
}

// merging keeps the metadata that a write leaves out.
type merging struct{ *handle }

func (b merging) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if before, err := b.handle.Read(ctx, strong, res.GetId()); err == nil && res.Metadata == nil {
		res = clone(res)
		res.Metadata = before.Metadata
	}
	return b.handle.WriteCAS(ctx, res)
}

// anyUid reads by the key alone.
type anyUid struct{ *handle }

func (b anyUid) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	if id != nil {
		id = withUid(id, "")
	}
	return b.handle.Read(ctx, c, id)
}

// lenient reads invalid ids as absent.
type lenient struct{ *handle }

func (b lenient) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	res, err := b.handle.Read(ctx, c, id)
	if errors.Is(err, storage.ErrInvalid) {
		err = storage.ErrNotFound
	}
	return res, err
}

// lastCounts takes several operations on one key.
type lastCounts struct{ *handle }

func (b lastCounts) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	var kept []storage.Op
	for i, op := range ops {
		later := slices.ContainsFunc(ops[i+1:], func(other storage.Op) bool { return keyOf(opID(other)) == keyOf(opID(op)) })
		if !later {
			kept = append(kept, op)
		}
	}
	return b.handle.Commit(ctx, kept)
}

// inParts commits a transaction that is too large operation by operation.
type inParts struct{ *handle }

func (b inParts) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	results, err := b.handle.Commit(ctx, ops)
	if len(ops) > b.MaxOps() || !errors.Is(err, storage.ErrTooLarge) {
		return results, err
	}
	for _, op := range ops {
		part, err := b.handle.Commit(ctx, []storage.Op{op})
		if err != nil {
			return nil, err
		}
		results = append(results, part...)
	}
	return results, nil
}

// unseeing accepts deletes with Present of absent keys.
type unseeing struct{ *handle }

func (b unseeing) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	ops = slices.Clone(ops)
	for i := range ops {
		ops[i].Present = ops[i].Present && ops[i].Delete.GetUid() == ""
	}
	return b.handle.Commit(ctx, ops)
}

// neverNil answers with an empty slice where nothing is found.
type neverNil struct{ *handle }

func (b neverNil) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	list, err := b.handle.List(ctx, c, typ, tenancy, prefix)
	return append([]*resourcepb.Resource{}, list...), err
}

func (b neverNil) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	ids, err := b.handle.OwnerReferences(ctx, id)
	return append([]*resourcepb.ID{}, ids...), err
}
