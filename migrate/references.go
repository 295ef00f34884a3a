package migrate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// references checks that the owner references of a store match its resources. A database has them apart from the resources, so they
// can be damaged although every resource is correct.
type references struct {
	store    storage.Backend
	families map[string]*family // by owner
	children int
	wrong    []*resourcepb.ID // children with a wrong reference, in key order
}

// family is an owner with some of its children, by key.
type family struct {
	owner    *resourcepb.ID
	children map[key.Key]*resourcepb.ID
}

const (
	// maxChildren limits the children in memory.
	maxChildren = 20_000
	// maxFamilies is the number of families that are checked concurrently.
	maxFamilies = 8
)

// add adds a resource. It checks the families if there are too many children in memory.
func (r *references) add(ctx context.Context, e *entry) error {
	res, err := e.resource()
	if err != nil || res.GetOwner() == nil {
		return err
	}
	owner := ownerName(res.GetOwner())
	f := r.families[owner]
	if f == nil {
		f = &family{owner: res.GetOwner(), children: make(map[key.Key]*resourcepb.ID)}
		if r.families == nil {
			r.families = make(map[string]*family)
		}
		r.families[owner] = f
	}
	f.children[e.Key] = codec.CloneID(res.GetId()) // the id of a decoded resource keeps its payload in memory
	if r.children++; r.children < maxChildren {
		return nil
	}
	return r.check(ctx)
}

// ownerName distinguishes owners: by key and uid.
func ownerName(owner *resourcepb.ID) string {
	return string(key.Of(owner).Bytes()) + "\x00" + owner.GetUid()
}

// check checks the families in memory and forgets them.
func (r *references) check(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxFamilies)
	results := make([][]*resourcepb.ID, 0, len(r.families))
	for _, f := range r.families {
		results = append(results, nil)
		wrong := &results[len(results)-1]
		group.Go(func() (err error) {
			// A difference may be a change between two reads, so that only a repeated difference counts.
			for range 2 {
				if *wrong, err = r.compare(ctx, f); len(*wrong) == 0 || err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	r.wrong = append(r.wrong, slices.Concat(results...)...)
	slices.SortFunc(r.wrong, func(a, b *resourcepb.ID) int { return key.Of(a).Compare(key.Of(b)) })
	r.families, r.children = nil, 0
	return err
}

// compare returns the ids of the resources whose references are missing, differ, or should not exist.
func (r *references) compare(ctx context.Context, f *family) (wrong []*resourcepb.ID, err error) {
	found, err := r.store.OwnerReferences(ctx, f.owner)
	if err != nil {
		return nil, fmt.Errorf("owner references of %v: %w", key.Of(f.owner), err)
	}
	seen := make(map[key.Key]bool, len(found))
	for _, ref := range found {
		k := key.Of(ref)
		seen[k] = true
		if proto.Equal(ref, f.children[k]) {
			continue
		}
		now, err := readAny(ctx, r.store, ref)
		if err != nil {
			return nil, err
		}
		if !isChild(now, f.owner) || !proto.Equal(ref, now.GetId()) {
			wrong = append(wrong, ref)
		}
	}
	for k, id := range f.children {
		if seen[k] {
			continue
		}
		now, err := readAny(ctx, r.store, id)
		if err != nil {
			return nil, err
		}
		if isChild(now, f.owner) {
			wrong = append(wrong, codec.CloneID(now.GetId()))
		}
	}
	return wrong, nil
}

func isChild(res *resourcepb.Resource, owner *resourcepb.ID) bool {
	return res.GetOwner() != nil && ownerName(res.GetOwner()) == ownerName(owner)
}

// readAny returns the resource stored under a key, whatever its uid and group version, or nil.
func readAny(ctx context.Context, b storage.Backend, id *resourcepb.ID) (*resourcepb.Resource, error) {
	anyUid := key.Of(id).ID("", id.GetType().GetGroupVersion())
	res, err := b.Read(ctx, storage.StrongConsistency, anyUid)
	var mismatch storage.GroupVersionMismatchError
	switch {
	case errors.As(err, &mismatch):
		return mismatch.Stored, nil
	case errors.Is(err, storage.ErrNotFound):
		return nil, nil
	}
	return res, err
}
