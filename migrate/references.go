package migrate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// references checks that the owner references of a store match its resources. A database has them apart from the resources, so they
// can be damaged although every resource is correct.
//
// A pass over the resources computes a digest of the children of each owner. The references to the owner must have the same digest, and
// there must be none to the other resources. Only owners with a difference are compared child by child. So the memory is that of the
// owners, not of their children. If there are too many owners, several passes consider a range of their hashes each.
type references struct {
	store storage.Backend
	list  func(ctx context.Context) (*listing, error)

	from, to uint64 // the range of this pass: the first 8 bytes of hashes
	families map[ownerHash]*family
	limit    int // maximum number of owners in memory

	mu       sync.Mutex
	suspects []*resourcepb.ID // owners whose references differ from the digest
	wrong    []*resourcepb.ID // children with a wrong reference, in key order
}

func newReferences(store storage.Backend, list func(ctx context.Context) (*listing, error)) *references {
	return &references{store: store, list: list, to: ^uint64(0), limit: maxOwners}
}

// family is an owner with a digest of its children, or with the children themselves if they are compared one by one.
type family struct {
	owner    *resourcepb.ID
	digest   digest
	children map[key.Key]*resourcepb.ID
}

const (
	maxOwners   = 100_000 // in memory
	maxSuspects = 1000    // owners that are compared child by child in one pass
	maxCalls    = 8       // concurrent calls of OwnerReferences
)

// digest is a checksum of a set of ids. It does not depend on their order.
type digest struct{ count, high, low uint64 }

func (d *digest) add(id *resourcepb.ID) {
	sum := sha256.Sum256([]byte(ownerName(id) + "\x00" + id.GetType().GetGroupVersion()))
	d.count++
	d.high += binary.BigEndian.Uint64(sum[:])
	d.low += binary.BigEndian.Uint64(sum[8:])
}

// ownerName distinguishes owners: by key and uid.
func ownerName(owner *resourcepb.ID) string {
	return string(key.Of(owner).Bytes()) + "\x00" + owner.GetUid()
}

// ownerHash is a hash of an owner's key and uid.
type ownerHash [16]byte

func hashOf(owner *resourcepb.ID) ownerHash {
	sum := sha256.Sum256([]byte(ownerName(owner)))
	return ownerHash(sum[:16])
}

func (r *references) inPass(hash ownerHash) bool {
	at := binary.BigEndian.Uint64(hash[:])
	return r.from <= at && at <= r.to
}

// add adds a resource to the family of its owner.
func (r *references) add(e *entry) error {
	res, err := e.resource()
	if err != nil || res.GetOwner() == nil {
		return err
	}
	hash := hashOf(res.GetOwner())
	if !r.inPass(hash) {
		return nil
	}
	f := r.families[hash]
	if f == nil {
		f = &family{owner: codec.CloneID(res.GetOwner())} // the id of a decoded resource keeps its payload in memory
		if r.families == nil {
			r.families = make(map[ownerHash]*family)
		}
		r.families[hash] = f
	}
	f.digest.add(res.GetId())
	for len(r.families) > r.limit && r.from < r.to {
		r.halveRange()
	}
	return nil
}

// halveRange leaves the upper half of the pass's range to a later pass.
func (r *references) halveRange() {
	r.to = r.from + (r.to-r.from)/2
	maps.DeleteFunc(r.families, func(hash ownerHash, _ *family) bool { return !r.inPass(hash) })
}

// check completes the first pass, whose resources were added, and makes the further ones.
func (r *references) check(ctx context.Context) error {
	for {
		if err := r.checkPass(ctx); err != nil {
			return err
		}
		if r.to == ^uint64(0) {
			break
		}
		r.from, r.to, r.families = r.to+1, ^uint64(0), nil
		if err := r.visit(ctx, r.add); err != nil {
			return err
		}
	}
	for suspects := range slices.Chunk(r.suspects, maxSuspects) {
		if err := r.compareSuspects(ctx, suspects); err != nil {
			return err
		}
	}
	slices.SortFunc(r.wrong, func(a, b *resourcepb.ID) int { return key.Of(a).Compare(key.Of(b)) })
	r.families = nil
	return nil
}

// visit visits the resources of the store.
func (r *references) visit(ctx context.Context, do func(e *entry) error) error {
	l, err := r.list(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	for {
		e, err := l.next(ctx)
		if e == nil || err != nil {
			return err
		}
		if err := do(e); err != nil {
			return err
		}
	}
}

// checkPass checks the owners of the pass, and the resources without children.
func (r *references) checkPass(ctx context.Context) error {
	group, calls := errgroup.WithContext(ctx)
	group.SetLimit(maxCalls)
	check := func(owner *resourcepb.ID, want digest) {
		group.Go(func() error {
			found, err := r.ask(calls, owner)
			if err != nil {
				return err
			}
			var got digest
			for _, ref := range found {
				got.add(ref)
			}
			if got != want {
				r.mu.Lock()
				defer r.mu.Unlock()
				r.suspects = append(r.suspects, owner)
			}
			return nil
		})
	}
	for _, f := range r.families {
		check(f.owner, f.digest)
	}
	err := r.visit(ctx, func(e *entry) error {
		res, err := e.resource()
		if err != nil {
			return err
		}
		if hash := hashOf(res.GetId()); r.inPass(hash) && r.families[hash] == nil {
			check(codec.CloneID(res.GetId()), digest{})
		}
		return calls.Err()
	})
	return cmp.Or(group.Wait(), err)
}

func (r *references) ask(ctx context.Context, owner *resourcepb.ID) ([]*resourcepb.ID, error) {
	found, err := r.store.OwnerReferences(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("owner references of %v: %w", key.Of(owner), err)
	}
	return found, nil
}

// compareSuspects compares the references to owners with their children, one by one.
func (r *references) compareSuspects(ctx context.Context, owners []*resourcepb.ID) error {
	families := make(map[string]*family, len(owners))
	for _, owner := range owners {
		families[ownerName(owner)] = &family{owner: owner, children: make(map[key.Key]*resourcepb.ID)}
	}
	err := r.visit(ctx, func(e *entry) error {
		res, err := e.resource()
		if err != nil || res.GetOwner() == nil {
			return err
		}
		if f := families[ownerName(res.GetOwner())]; f != nil {
			f.children[e.Key] = codec.CloneID(res.GetId())
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, f := range families {
		// A difference may be a change between two reads, so that only a repeated difference counts.
		var wrong []*resourcepb.ID
		for range 2 {
			if wrong, err = r.compare(ctx, f); len(wrong) == 0 || err != nil {
				break
			}
		}
		if err != nil {
			return err
		}
		r.wrong = append(r.wrong, wrong...)
	}
	return nil
}

// compare returns the ids of the resources whose references are missing, differ, or should not exist.
func (r *references) compare(ctx context.Context, f *family) (wrong []*resourcepb.ID, err error) {
	found, err := r.ask(ctx, f.owner)
	if err != nil {
		return nil, err
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
