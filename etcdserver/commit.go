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

// commit is changes of several keys, or of keys with leases, that are made together or not at all.
type commit struct {
	after  int64 // the revision at which the keys were read
	keys   map[string]*change
	order  []string // of keys that change
	leases map[int64]bool
}

// change is what a commit does with a key.
type change struct {
	id     *resourcepb.ID
	before *history.Record      // nil for nothing stored
	write  *resourcepb.Resource // nil where nothing is put
	lease  int64                // of what is written
	delete bool
	// requiresUnchanged makes the commit fail if the key has changed. A put always requires that.
	requiresUnchanged bool
}

// modifies reports whether the key is another one after the commit.
func (c *change) modifies() bool { return c.write != nil || c.delete && c.before != nil }

// errConcurrentChange says that something has changed since it was read, and that nothing was done.
var errConcurrentChange = errors.New("it has changed since it was read")

// run makes the changes, and returns the revision of the last one.
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

// revision finds the revision of a commit, that of its last change. The store may carry out those of others in the same transaction: what
// they have changed behind it is not part of it.
//
// The search ends after a while, also where the caller has set no end: what it follows waits for a database that is away.
func (c *commit) revision(ctx context.Context, s *Server, stored []*resourcepb.Resource) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	if key, one := c.singlePut(); one != nil { // nothing is as quick as to read it, if nobody has written since
		now, _, err := s.get(ctx, idAt(key))
		if err == nil && now != nil && isStored(now.Resource, stored) {
			return now.Modified, nil
		}
	}
	var changing []string
	for key, one := range c.keys {
		if one.modifies() {
			changing = append(changing, key)
		}
	}
	span := history.Span{From: idAt(slices.Min(changing)), To: idAt(slices.Max(changing))}
	span.To.Name += "\x01"
	follower, err := s.history.Follow(ctx, span, c.after)
	if err != nil {
		return c.unknownRevision(ctx, s, err)
	}
	defer follower.Close()
	for {
		changes, _, err := follower.Next(ctx)
		if err != nil {
			return c.unknownRevision(ctx, s, err)
		}
		for _, together := range splitCommits(changes) {
			revision := int64(0)
			for i := range together {
				if c.includes(&together[i], stored) {
					revision = together[i].Revision
				}
			}
			if revision > 0 {
				return revision, nil
			}
		}
	}
}

// searchTimeout is as long as a store answers at all by default.
const searchTimeout = 30 * time.Second

// includes reports whether a change is one of the commit. A key that it has deleted was stored as it was read: had another one deleted that, the
// commit had failed.
func (c *commit) includes(ch *history.Change, stored []*resourcepb.Resource) bool {
	one := c.keys[changedKey(ch)]
	switch {
	case one == nil || !one.modifies():
		return false
	case one.write != nil:
		return ch.Now != nil && isStored(ch.Now.Resource, stored)
	}
	return ch.Now == nil && ch.Before != nil && ch.Before.Modified == one.before.Modified
}

// unknownRevision returns the newest revision, where history is already forgotten in which that of the commit was.
func (c *commit) unknownRevision(ctx context.Context, s *Server, err error) (int64, error) {
	if !errors.Is(err, storage.ErrCompacted) {
		return 0, fmt.Errorf("%w: it was carried out, but its revision is not known: %w", storage.ErrInconsistent, err)
	}
	_, newest, err := s.history.Revisions(ctx)
	return newest, err
}

// singlePut returns the key that a commit changes if it is one, and put.
func (c *commit) singlePut() (string, *change) {
	name, found := "", (*change)(nil)
	for key, one := range c.keys {
		if !one.modifies() {
			continue
		}
		if found != nil || one.write == nil {
			return "", nil
		}
		name, found = key, one
	}
	return name, found
}

// isStored reports whether a resource is one of those that a commit has stored.
func isStored(res *resourcepb.Resource, stored []*resourcepb.Resource) bool {
	return slices.ContainsFunc(stored, func(o *resourcepb.Resource) bool {
		return o != nil && o.GetVersion() == res.GetVersion() && o.GetId().GetName() == res.GetId().GetName() &&
			proto.Equal(o.GetId().GetTenancy(), res.GetId().GetTenancy()) && o.GetId().GetType().GetKind() == res.GetId().GetType().GetKind()
	})
}

// splitCommits cuts changes into those of each commit.
func splitCommits(changes []history.Change) (all [][]history.Change) {
	for begin, i := 0, 0; i < len(changes); i++ {
		if !changes[i].More {
			all = append(all, changes[begin:i+1])
			begin = i + 1
		}
	}
	return all
}

// changedKey returns the key that a change is of, "" for what is no key.
func changedKey(c *history.Change) string {
	r := c.Now
	if r == nil {
		r = c.Before
	}
	if r.Resource.GetId().GetType().GetKind() != keyType.Kind {
		return ""
	}
	return string(keyOf(r.Resource.GetId()))
}
