package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// commit is an atomic change of several keys, or of keys with leases.
type commit struct {
	after  int64 // revision at which the keys were read
	keys   map[string]*change
	order  []string // of the keys that change
	leases map[int64]bool
}

// change is the part of a commit that concerns one key.
type change struct {
	id     *resourcepb.ID
	before *history.Record      // nil if nothing was stored
	write  *resourcepb.Resource // nil without a put
	lease  int64                // of the new value
	delete bool
	// requiresUnchanged makes the commit fail if the key has changed. A put always requires that.
	requiresUnchanged bool
}

// modifies reports whether the commit changes the key.
func (c *change) modifies() bool { return c.write != nil || c.delete && c.before != nil }

// errConcurrentChange reports that a key has changed since it was read. The commit had no effect.
var errConcurrentChange = errors.New("it has changed since it was read")

// run commits the changes and returns their revision.
func (c *commit) run(ctx context.Context, s *Server) (int64, error) {
	ops, err := c.ops(ctx, s)
	if err != nil {
		return 0, err
	}
	if len(ops) > s.commits.MaxOps() {
		return 0, rpctypes.ErrGRPCTooManyOps
	}
	stored, err := s.commits.Commit(ctx, ops)
	switch {
	case errors.Is(err, storage.ErrInconsistent): // the commit may have succeeded, whatever else the error matches
		return 0, err
	case errors.Is(err, storage.ErrCASFailure), errors.Is(err, storage.ErrWrongUid):
		return 0, errConcurrentChange
	case err != nil:
		return 0, err
	}
	return c.revision(ctx, s, stored)
}

// ops returns the changes as operations of a transaction.
func (c *commit) ops(ctx context.Context, s *Server) (ops []storage.Op, err error) {
	owners := map[int64]*resourcepb.ID{}
	for id := range c.leases {
		l, err := s.lease(ctx, id)
		if err != nil {
			return nil, err
		}
		owners[id] = l.Owner()
		ops = append(ops, l.Alive())
	}
	guards := slices.DeleteFunc(slices.Collect(maps.Keys(c.keys)), func(key string) bool { return c.keys[key].modifies() })
	for _, key := range slices.Concat(guards, c.order) {
		one, version := c.keys[key], ""
		if one.before != nil {
			version = one.before.Resource.GetVersion()
		}
		switch {
		case one.write != nil:
			one.write.Version, one.write.Owner = version, owners[one.lease]
			ops = append(ops, storage.Op{Write: one.write})
		case one.modifies():
			ops = append(ops, storage.Op{Delete: one.id, Version: version, Present: true})
		case one.requiresUnchanged:
			ops = append(ops, storage.Op{Check: one.id, Version: version})
		}
	}
	return ops, nil
}

// revision finds the revision of a commit, which its changes share.
//
// The search has a timeout even if the caller sets no deadline, because the follower waits while the database is unreachable.
func (c *commit) revision(ctx context.Context, s *Server, stored []*resourcepb.Resource) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	if key, found := c.firstPut(); found { // the fastest way, if no other write of the key followed
		now, _, err := s.get(ctx, idAt(key))
		if err == nil && now != nil && isStored(now.Resource, stored) {
			return now.Modified, nil
		}
	}
	revision, err := c.search(ctx, s, stored, c.after)
	if errors.Is(err, storage.ErrCompacted) { // perhaps only what came before the commit was compacted
		var oldest int64
		if oldest, _, err = s.history.Revisions(ctx); err == nil {
			revision, err = c.search(ctx, s, stored, oldest)
		}
	}
	switch {
	case errors.Is(err, storage.ErrCompacted):
		_, newest, err := s.history.Revisions(ctx)
		return newest, err
	case err != nil:
		return 0, fmt.Errorf("%w: the commit succeeded, but its revision is unknown: %w", storage.ErrInconsistent, err)
	}
	return revision, nil
}

// search finds the revision of the commit among the changes after a revision. It returns storage.ErrCompacted if the history no longer contains
// the commit.
func (c *commit) search(ctx context.Context, s *Server, stored []*resourcepb.Resource, after int64) (int64, error) {
	var changing []string
	for key, one := range c.keys {
		if one.modifies() {
			changing = append(changing, key)
		}
	}
	span := history.Range{From: idAt(slices.Min(changing)), To: idAt(slices.Max(changing))}
	span.To.Name += "\x01"
	follower, err := s.history.Follow(ctx, span, after)
	if err != nil {
		return 0, err
	}
	defer follower.Close()
	if after > c.after { // the commit may be older
		if err := follower.Bookmark(ctx); err != nil {
			return 0, err
		}
	}
	for {
		changes, _, err := follower.Next(ctx)
		if err != nil {
			return 0, err
		}
		for i := range changes {
			if c.includes(&changes[i], stored) {
				return changes[i].Revision, nil
			}
		}
		if len(changes) == 0 && after > c.after {
			return 0, storage.ErrCompacted
		}
	}
}

// searchTimeout equals the default timeout of a store.
const searchTimeout = 30 * time.Second

// includes reports whether a change belongs to the commit. A key that the commit deleted was stored as read: if another deletion had come
// first, the commit would have failed.
func (c *commit) includes(ch *history.Change, stored []*resourcepb.Resource) bool {
	one := c.keys[changedKey(ch)]
	switch {
	case one == nil || !one.modifies():
		return false
	case one.write != nil:
		return ch.New != nil && isStored(ch.New.Resource, stored)
	}
	return ch.New == nil && ch.Old != nil && ch.Old.Modified == one.before.Modified
}

// firstPut returns a key that the commit puts, if there is one.
func (c *commit) firstPut() (key string, found bool) {
	i := slices.IndexFunc(c.order, func(key string) bool { return c.keys[key].write != nil })
	if i < 0 {
		return "", false
	}
	return c.order[i], true
}

// isStored reports whether a resource is one of those that the commit stored.
func isStored(res *resourcepb.Resource, stored []*resourcepb.Resource) bool {
	return slices.ContainsFunc(stored, func(o *resourcepb.Resource) bool {
		return o != nil && o.GetVersion() == res.GetVersion() && o.GetId().GetName() == res.GetId().GetName() &&
			proto.Equal(o.GetId().GetTenancy(), res.GetId().GetTenancy()) && o.GetId().GetType().GetKind() == res.GetId().GetType().GetKind()
	})
}

// changedKey returns the key of a change, or "" if the resource is not a key.
func changedKey(c *history.Change) string {
	r := c.New
	if r == nil {
		r = c.Old
	}
	if r.Resource.GetId().GetType().GetKind() != keyType.Kind {
		return ""
	}
	return string(keyOf(r.Resource.GetId()))
}
