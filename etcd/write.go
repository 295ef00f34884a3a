package etcd

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Apply implements driver.Driver. What is one operation joins a batch, unless it has to be alone.
func (b *handle) Apply(ctx context.Context, mutations []driver.Mutation) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if len(mutations) > 1 || mutations[0].Verb == driver.Check || mutations[0].Exclusive {
		return b.commit(ctx, mutations)
	}
	m := &mutations[0]
	from, possible := b.baseOf(m)
	if !possible {
		r, err := b.get(ctx, b.layout.resource(m.Key))
		if err != nil {
			return err
		}
		return b.refuse(m, r.kv)
	}
	var sent *mutation
	if m.Verb == driver.Delete {
		sent = b.remove(m.Key, from)
	} else if sent, err = b.put(m.Key, m.Resource, from, b.token()); err != nil {
		return err
	}
	o, err := b.apply(ctx, sent)
	switch {
	case err != nil:
		return err
	case !o.succeeded:
		return b.refuse(m, o.conflict)
	case m.Verb == driver.Write:
		m.NewVersion = b.layout.version(m.Key, m.Uid, base{rev: o.rev, entry: entryOf(m.Resource)})
	}
	m.Revision = o.rev
	return nil
}

// refuse is why a mutation was not done, or nil where it has nothing to do.
func (b *handle) refuse(m *driver.Mutation, kv *mvccpb.KeyValue) error {
	stored, err := b.decodeStored(kv)
	if err != nil {
		return err
	}
	changes, err := m.Decide(stored)
	switch {
	case err != nil:
		return &storage.OpError{Err: err}
	case changes:
		return errImpossible
	}
	return nil
}

// errImpossible would be a fault in this package: the comparison failed, though what is stored is what was compared with.
var errImpossible = fmt.Errorf("%w: etcd refused a comparison that holds", storage.ErrInconsistent)

// baseOf returns the state in which a mutation does what it says. false: the version given cannot be what is stored.
func (b *handle) baseOf(m *driver.Mutation) (base, bool) {
	if m.Version == "" && m.Verb != driver.Delete {
		return base{}, true
	}
	return b.layout.parseVersion(m.Key, m.Uid, m.Version)
}

// decodeStored is what the decision tables ask about a key.
func (b *handle) decodeStored(kv *mvccpb.KeyValue) (driver.Stored, error) {
	if kv == nil {
		return driver.Stored{}, nil
	}
	_, res, err := b.layout.decode(kv)
	if err != nil {
		return driver.Stored{}, err
	}
	return driver.Stored{Exists: true, Uid: res.GetId().GetUid(), Version: res.GetVersion()}, nil
}

// opOverhead is what the framing of an operation weighs at most.
const opOverhead = 64

// put makes the mutation that writes res over a state.
func (b *handle) put(k key.Key, res *resourcepb.Resource, from base, t token) (*mutation, error) {
	value, err := codec.Append(appendHeader(make([]byte, 0, valueHeader+codec.Size(res)), t), res)
	if err != nil {
		return nil, err
	}
	m := &mutation{key: k, etcdKey: b.layout.resource(k), base: from, token: t}
	m.ops = append(make([]*pb.RequestOp, 0, maxOpsEach), opPut(m.etcdKey, value))
	m.size = 3*len(m.etcdKey) + len(value) + 4*opOverhead
	now := entryOf(res)
	if old := from.entry; old != nil && (now == nil || now.owner != old.owner) {
		m.dropEntry(b.layout.entryKey(old.owner, k))
	}
	if now != nil && (from.entry == nil || *from.entry != *now) {
		entryKey, entryValue := b.layout.entryKey(now.owner, k), entryValue(res.GetId())
		m.ops = append(m.ops, opPut(entryKey, entryValue))
		m.size += len(entryKey) + len(entryValue) + opOverhead
	}
	return m, nil
}

// remove makes the mutation that deletes what is stored in a state.
func (b *handle) remove(k key.Key, from base) *mutation {
	m := &mutation{key: k, etcdKey: b.layout.resource(k), base: from}
	m.ops = append(make([]*pb.RequestOp, 0, maxOpsEach), opDelete(m.etcdKey))
	m.size = 3*len(m.etcdKey) + 4*opOverhead
	if from.entry != nil {
		m.dropEntry(b.layout.entryKey(from.entry.owner, k))
	}
	return m
}

func (m *mutation) dropEntry(entryKey []byte) {
	m.ops = append(m.ops, opDelete(entryKey))
	m.size += len(entryKey) + opOverhead
}
