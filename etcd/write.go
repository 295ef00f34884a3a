package etcd

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/cas"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WriteCAS implements [storage.Backend].
func (b *Backend) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	k, err := check.Resource(res, b.opts.MaxSize)
	ctx, done, err := b.begin(ctx, err)
	if err != nil {
		return nil, err
	}
	defer done()
	from, possible := b.baseOf(k, res.Id.Uid, res.Version)
	if !possible {
		return nil, b.refuse(ctx, k, func(s cas.Stored) error { return cas.Write(s, res.Id.Uid, res.Version) })
	}
	m, err := b.put(k, res, from, b.token())
	if err != nil {
		return nil, describe("write", k, err)
	}
	o, err := b.apply(ctx, m)
	if err != nil {
		return nil, describe("write", k, err)
	}
	if !o.applied {
		stored, err := b.stored(o.stored)
		if err == nil {
			err = cas.Write(stored, res.Id.Uid, res.Version)
		}
		if err == nil {
			err = errImpossible
		}
		return nil, describe("write", k, err)
	}
	out := message.Clone(res)
	out.Version = b.layout.version(k, res.Id.Uid, base{rev: o.rev, edge: edgeOf(res)})
	return out, nil
}

// DeleteCAS implements [storage.Backend].
func (b *Backend) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	k, err := check.ID("id", id)
	ctx, done, err := b.begin(ctx, err)
	if err != nil {
		return err
	}
	defer done()
	decide := func(s cas.Stored) error {
		remove, err := cas.Delete(s, id.GetUid(), version)
		if remove {
			return errImpossible
		}
		return err
	}
	from, possible := b.layout.parseVersion(k, id.GetUid(), version)
	if !possible {
		return b.refuse(ctx, k, decide)
	}
	o, err := b.apply(ctx, b.remove(k, from))
	if err != nil {
		return describe("delete", k, err)
	}
	if o.applied {
		return nil
	}
	stored, err := b.stored(o.stored)
	if err == nil {
		err = decide(stored)
	}
	if err != nil {
		return describe("delete", k, err)
	}
	return nil
}

// errImpossible would be a fault in this package: the comparison failed, though what is stored is what was compared with.
var errImpossible = fmt.Errorf("%w: etcd refused a comparison that holds", storage.ErrInconsistent)

// baseOf returns the state that a version given to a write stands for. false: it cannot be what is stored.
func (b *Backend) baseOf(k key.Key, uid, version string) (base, bool) {
	if version == "" {
		return base{}, true
	}
	return b.layout.parseVersion(k, uid, version)
}

// refuse finds out why an operation cannot be done, or that it has nothing to do.
func (b *Backend) refuse(ctx context.Context, k key.Key, decide func(cas.Stored) error) error {
	r, err := b.get(ctx, b.layout.resource(k))
	if err != nil {
		return describe("compare", k, err)
	}
	stored, err := b.stored(r.kv)
	if err == nil {
		err = decide(stored)
	}
	if err != nil {
		return describe("compare", k, err)
	}
	return nil
}

// stored is what the decision tables ask about a key.
func (b *Backend) stored(kv *mvccpb.KeyValue) (cas.Stored, error) {
	if kv == nil {
		return cas.Stored{}, nil
	}
	_, res, err := b.layout.decode(kv)
	if err != nil {
		return cas.Stored{}, err
	}
	return cas.Stored{Exists: true, Uid: res.GetId().GetUid(), Version: res.GetVersion()}, nil
}

// opOverhead is what the framing of an operation weighs at most.
const opOverhead = 64

// put makes the mutation that writes res over a state.
func (b *Backend) put(k key.Key, res *resourcepb.Resource, from base, t token) (*mutation, error) {
	value, err := message.Append(appendHeader(make([]byte, 0, valueHeader+message.Size(res)), t), res)
	if err != nil {
		return nil, err
	}
	m := &mutation{key: k, etcdKey: b.layout.resource(k), base: from, token: t}
	m.ops = append(make([]*pb.RequestOp, 0, maxOpsEach), opPut(m.etcdKey, value))
	m.size = 3*len(m.etcdKey) + len(value) + 4*opOverhead
	now := edgeOf(res)
	if old := from.edge; old != nil && (now == nil || now.owner != old.owner) {
		m.dropEdge(b.layout.edgeKey(old.owner, k))
	}
	if now != nil && (from.edge == nil || *from.edge != *now) {
		edgeKey, edgeValue := b.layout.edgeKey(now.owner, k), edgeValue(res.GetId())
		m.ops = append(m.ops, opPut(edgeKey, edgeValue))
		m.size += len(edgeKey) + len(edgeValue) + opOverhead
	}
	return m, nil
}

// remove makes the mutation that deletes what is stored in a state.
func (b *Backend) remove(k key.Key, from base) *mutation {
	m := &mutation{key: k, etcdKey: b.layout.resource(k), base: from}
	m.ops = append(make([]*pb.RequestOp, 0, maxOpsEach), opDelete(m.etcdKey))
	m.size = 3*len(m.etcdKey) + 4*opOverhead
	if from.edge != nil {
		m.dropEdge(b.layout.edgeKey(from.edge.owner, k))
	}
	return m
}

func (m *mutation) dropEdge(edgeKey []byte) {
	m.ops = append(m.ops, opDelete(edgeKey))
	m.size += len(edgeKey) + opOverhead
}
