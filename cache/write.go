package cache

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WriteCAS implements storage.Backend. Later reads return the write.
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

// DeleteCAS implements storage.Backend. Later reads do not return the deleted resource.
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

// cloneForTrim returns a resource that Options.Trim may modify.
func (c *Cache) cloneForTrim(res *resourcepb.Resource) *resourcepb.Resource {
	if c.opts.Trim == nil {
		return res
	}
	return codec.Clone(res)
}

// noteUnsure marks the keys of a commit whose copy may be behind or ahead of the write.
func (c *Cache) noteUnsure(unsure []key.Key, written []*resourcepb.Resource) {
	for _, k := range unsure {
		version := ""
		for _, res := range written {
			if c.copy.Bookmarks() && key.Of(res.GetId()) == k { // without bookmarks the copy has the write, but cannot prove that it is not behind
				version = res.GetVersion()
			}
		}
		c.unconfirmedKeys.add(k, version)
	}
}

// transactor adds storage.Transactor to a cache.
type transactor struct {
	*Cache
	inner storage.Transactor
}

// MaxOps implements storage.Transactor.
func (t transactor) MaxOps() int { return t.inner.MaxOps() }

// Commit implements storage.Transactor. Later reads return all of its changes.
func (t transactor) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	if t.closed.Load() {
		return t.inner.Commit(ctx, ops)
	}
	var keys []key.Key
	var deleted []*resourcepb.Resource
	for i := range ops {
		switch write, deletion := ops[i].Write, ops[i].Delete; {
		case write != nil && t.holds(key.Of(write.GetId())):
			keys = append(keys, key.Of(write.GetId()))
		case deletion != nil && t.holds(key.Of(deletion)):
			keys = append(keys, key.Of(deletion))
			deleted = append(deleted, &resourcepb.Resource{Id: deletion, Version: ops[i].Version})
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

// noteFailure records which operation of a commit was refused.
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
