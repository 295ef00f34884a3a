package sqlite

import (
	"context"

	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/handover"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

// change is one operation, ready for the writer.
type change struct {
	kind  changeKind
	key   []byte
	uid   string
	given string // the version that the caller expects
	// The rest belongs to a write.
	groupVersion string
	owner, data  []byte
	written      mark // set by the writer
}

type changeKind byte

const (
	writeChange changeKind = iota
	deleteChange
	checkChange
)

func writing(k key.Key, res *resourcepb.Resource) (change, error) {
	data, err := message.Encode(res)
	return change{
		kind: writeChange, key: k.Bytes(), uid: res.Id.Uid, given: res.Version,
		groupVersion: res.Id.Type.GroupVersion, owner: ownerBytes(res.Owner), data: data,
	}, err
}

// written returns what the caller gets for a write.
func (c *change) result(res *resourcepb.Resource) *resourcepb.Resource {
	out := message.Clone(res)
	out.Version = c.written.version()
	return out
}

// WriteCAS implements storage.Backend.
func (s *Backend) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	k, err := check.Resource(res, s.options.MaxSize)
	if err := s.enter(ctx, err); err != nil {
		return nil, err
	}
	c, err := writing(k, res)
	if err == nil {
		r := &request{changes: []change{c}}
		if err = s.write(ctx, r); err == nil {
			return r.changes[0].result(res), nil
		}
	}
	return nil, about("write", k, err)
}

// DeleteCAS implements storage.Backend.
func (s *Backend) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	k, err := check.ID("id", id)
	if err := s.enter(ctx, err); err != nil {
		return err
	}
	r := &request{changes: []change{{kind: deleteChange, key: k.Bytes(), uid: id.Uid, given: version}}}
	if err := s.write(ctx, r); err != nil {
		return about("delete", k, err)
	}
	return nil
}

// write has the writer carry out a request and waits for it, within ctx or the store's own timeout.
func (s *Backend) write(ctx context.Context, r *request) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	r.guard = handover.GuardOf(ctx)
	return s.writer.do(ctx, r)
}
