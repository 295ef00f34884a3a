package cache

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WriteCAS implements storage.Backend. Reads after it show the write.
func (c *Cache) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	k := key.Of(res.GetId())
	if c.closed.Load() || !c.holds(k) {
		return c.backend.WriteCAS(ctx, res)
	}
	writing := c.copy.Begin([]key.Key{k})
	stored, err := c.backend.WriteCAS(ctx, res)
	if err != nil {
		writing.End(nil, nil)
		c.noteRefusal(res.GetId(), res.GetVersion(), err)
		return nil, err
	}
	c.noteUnsure(writing.End([]*resourcepb.Resource{c.cloneForTrim(stored)}, nil), []*resourcepb.Resource{stored})
	return stored, nil
}

// DeleteCAS implements storage.Backend. Reads after it do not show what was deleted.
func (c *Cache) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	k := key.Of(id)
	if c.closed.Load() || !c.holds(k) {
		return c.backend.DeleteCAS(ctx, id, version)
	}
	writing := c.copy.Begin([]key.Key{k})
	if err := c.backend.DeleteCAS(ctx, id, version); err != nil {
		writing.End(nil, nil)
		c.noteRefusal(id, version, err)
		return err
	}
	c.noteUnsure(writing.End(nil, []*resourcepb.Resource{{Id: id, Version: version}}), nil)
	return nil
}

// cloneForTrim returns a resource that the copy may trim.
func (c *Cache) cloneForTrim(res *resourcepb.Resource) *resourcepb.Resource {
	if c.opts.Trim == nil {
		return res
	}
	return codec.Clone(res)
}

// noteUnsure puts in doubt those keys of a commit that the copy is not sure of.
func (c *Cache) noteUnsure(unsure []key.Key, written []*resourcepb.Resource) {
	for _, k := range unsure {
		version := ""
		for _, res := range written {
			if c.copy.Bookmarks() && key.Of(res.GetId()) == k { // else the copy shows it, and nothing proves that it is not behind
				version = res.GetVersion()
			}
		}
		c.unconfirmedKeys.add(k, version)
	}
}

// transactor is a cache over a Transactor.
type transactor struct {
	*Cache
	inner storage.Transactor
}

// MaxOps implements storage.Transactor.
func (t transactor) MaxOps() int { return t.inner.MaxOps() }

// Commit implements storage.Transactor. Reads after it show all of it.
func (t transactor) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if t.closed.Load() {
		return t.inner.Commit(ctx, ops)
	}
	var keys []key.Key
	var deleted []*resourcepb.Resource
	for i := range ops {
		switch write, gone := ops[i].Write, ops[i].Delete; {
		case write != nil && t.holds(key.Of(write.GetId())):
			keys = append(keys, key.Of(write.GetId()))
		case gone != nil && t.holds(key.Of(gone)):
			keys = append(keys, key.Of(gone))
			deleted = append(deleted, &resourcepb.Resource{Id: gone, Version: ops[i].Version})
		}
	}
	writing := t.copy.Begin(keys)
	results, err := t.inner.Commit(ctx, ops)
	if err != nil {
		writing.End(nil, nil)
		t.noteFailure(ops, err)
		return nil, err
	}
	for i := range ops {
		if ops[i].Check != nil {
			t.noteCheck(ops[i].Check, ops[i].Version)
		}
	}
	var written []*resourcepb.Resource
	for _, res := range results {
		if res != nil && t.holds(key.Of(res.GetId())) {
			written = append(written, t.cloneForTrim(res))
		}
	}
	t.noteUnsure(writing.End(written, deleted), written)
	return results, nil
}

// noteFailure notes which operation of a commit was refused.
func (c *Cache) noteFailure(ops []storage.Op, err error) {
	var failed *storage.OpError
	if !errors.As(err, &failed) || failed.Index >= len(ops) {
		return
	}
	switch op := &ops[failed.Index]; {
	case op.Write != nil:
		c.noteRefusal(op.Write.GetId(), op.Write.GetVersion(), err)
	case op.Delete != nil:
		c.noteRefusal(op.Delete, op.Version, err)
	case op.Check != nil:
		c.noteRefusal(op.Check, op.Version, err)
	}
}
