package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/manifest"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
)

// concurrency is the number of concurrent reads or writes.
const concurrency = 8

// set is the input of one apply, in the order of the files.
type set struct {
	items []*item
	byKey map[key.Key]*item
}

// newSet performs all checks that do not need the store.
func newSet(objects []*manifest.Object) (*set, error) {
	s := &set{byKey: make(map[key.Key]*item, len(objects))}
	for _, o := range objects {
		it := &item{object: o, resultCh: make(chan struct{})}
		var err error
		if it.key, err = check.Resource(sample(o), 0); err != nil {
			return nil, cli.Failedf("%v: %w", o.Position, err)
		}
		if other := s.byKey[it.key]; other != nil {
			return nil, cli.Failedf("%v: %s is also in %v", o.Position, cli.Describe(o.Resource.GetId()), other.object.Position)
		}
		s.byKey[it.key] = it
		s.items = append(s.items, it)
	}
	return s, nil
}

// sample returns the resource to be written, with placeholders of the right size for the fields that are not known yet.
func sample(o *manifest.Object) *resourcepb.Resource {
	res := proto.CloneOf(o.Resource)
	standIn := newULID()
	if res.Id.Uid == "" {
		res.Id.Uid = standIn
	}
	if res.Generation == "" {
		res.Generation = standIn
	}
	if len(o.Owners) > 0 {
		res.Owner = proto.CloneOf(o.Owners[0])
		res.Owner.Uid = standIn
	}
	return res
}

// findOwners connects resources to their owners, in the set or in the store.
func (s *set) findOwners(ctx context.Context, backend storage.Backend) error {
	stored, err := s.readOwners(ctx, backend)
	if err != nil {
		return err
	}
	for _, it := range s.items {
		if owner := it.object.Resource.GetOwner(); owner != nil {
			it.owner, it.parent = owner, s.byKey[key.Of(owner)]
			continue
		}
		for _, candidate := range it.object.Owners {
			if parent := s.byKey[key.Of(candidate)]; parent != nil {
				it.owner, it.parent = proto.CloneOf(candidate), parent
				break
			}
			if uid := stored[key.Of(candidate)]; uid != "" {
				it.owner = proto.CloneOf(candidate)
				it.owner.Uid = uid
				break
			}
		}
		if it.owner == nil && len(it.object.Owners) > 0 {
			return cli.Failedf("%v: the owner of %s, %s, is neither in the files nor in the store", it.object.Position,
				cli.Describe(it.object.Resource.GetId()), cli.Describe(it.object.Owners[0]))
		}
	}
	return s.checkCycles()
}

// readOwners returns the uids of the owners that are not in the set.
func (s *set) readOwners(ctx context.Context, backend storage.Backend) (map[key.Key]string, error) {
	missing := map[key.Key]*resourcepb.ID{}
	for _, it := range s.items {
		for _, candidate := range it.object.Owners {
			if k := key.Of(candidate); s.byKey[k] == nil {
				missing[k] = candidate
			}
		}
	}
	type ownerUID struct {
		key key.Key
		uid string
	}
	uids := make(chan ownerUID, len(missing))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for k, id := range missing {
		group.Go(func() error {
			res, err := read(ctx, backend, id)
			if errors.Is(err, storage.ErrNotFound) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("find the owner %s: %w", cli.Describe(id), err)
			}
			uids <- ownerUID{key: k, uid: res.GetId().GetUid()}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	close(uids)
	found := make(map[key.Key]string, len(missing))
	for u := range uids {
		found[u.key] = u.uid
	}
	return found, nil
}

// checkCycles rejects resources that own each other, because none of them could be written first.
func (s *set) checkCycles() error {
	safe := map[*item]bool{}
	for _, it := range s.items {
		path := map[*item]bool{}
		var names []string
		for at := it; at != nil && !safe[at]; at = at.parent {
			if path[at] {
				return cli.Failedf("%v: resources own each other in a circle: %s", it.object.Position, strings.Join(names, ", "))
			}
			path[at] = true
			names = append(names, cli.Describe(at.object.Resource.GetId()))
		}
		for at := range path {
			safe[at] = true
		}
	}
	return nil
}

// apply writes the set, owners first and several resources at once, and prints the outcomes in the order of the files. After a failure it
// starts no more writes.
func (s *set) apply(ctx context.Context, backend storage.Backend, out io.Writer) error {
	slots := make(chan struct{}, concurrency)
	failed := make(chan struct{})
	var once sync.Once
	for _, it := range s.items {
		go func() {
			defer close(it.resultCh)
			if it.err = it.wait(slots, failed); it.err != nil {
				return
			}
			defer func() { <-slots }()
			it.outcome, it.id, it.err = it.write(ctx, backend)
			if errors.Is(it.err, storage.ErrInvalid) {
				it.err = cli.Failedf("%w", it.err) // the server found a mistake in the document, not in the command line
			}
			if it.err != nil {
				once.Do(func() { close(failed) })
			}
		}()
	}
	var first error
	written := 0
	for _, it := range s.items {
		<-it.resultCh
		switch {
		case it.err == nil:
			written++
			if _, err := fmt.Fprintf(out, "%s %s\n", cli.Describe(it.id), it.outcome); err != nil && first == nil {
				first = err
				once.Do(func() { close(failed) })
			}
		case first == nil && !errors.Is(it.err, errSkipped):
			first = fmt.Errorf("%v: %s: %w", it.object.Position, cli.Describe(it.object.Resource.GetId()), it.err)
		}
	}
	if first != nil && len(s.items) > 1 {
		return fmt.Errorf("%w (%d of %d were applied; apply can be repeated safely)", first, written, len(s.items))
	}
	return first
}
