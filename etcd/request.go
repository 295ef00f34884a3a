package etcd

import (
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
)

// request is the transaction of one Apply. First it compares the versions given. If a comparison fails, the values that etcd
// returns decide: a mutation fails, or has nothing to change (a delete of a deleted resource). Then the request is sent again and
// compares those values.
//
// A request that compares the mod revision of an existing key is applied at most once, however often it is sent. Any other request may be
// sent again only after its outcome is known.
type request struct {
	mutations []driver.Mutation
	layout    *layout
	token     token
	slot      byte // of the receipt key
	exclusive bool // the request must not share a transaction
	guard     *guard
	since     int64  // a revision from before the request was first sent
	idle      []bool // mutations that have nothing to change; nil: none

	// The rest is set by prepare.
	bases   []base        // the state that each mutation replaces
	compare []*pb.Compare // one for each mutation
	changes []*pb.RequestOp
	size    int // bytes in a transaction
	receipt receipt
}

// receipt identifies an applied request after a lost answer: by a value of the key with the token, or, if the token is zero, by the first
// event of the key since the request was sent, a deletion.
type receipt struct {
	key   []byte
	token token
	base  int64 // the mod revision of key before the request
}

// outcome is the result of a request. rev is 0 if it was not applied.
type outcome struct {
	rev        int64
	values     []*mvccpb.KeyValue // under the keys of the mutations; nil elements for keys that do not exist
	guardError error              // the guard does not hold
}

// givenBases parses the given versions. If no resource under the key can have a version, it returns false, and for that version a
// revision that no resource has.
func (r *request) givenBases() (bases []base, possible bool) {
	bases, possible = make([]base, len(r.mutations)), true
	for i := range r.mutations {
		m := &r.mutations[i]
		if m.Version == "" && m.Verb != driver.Delete {
			continue
		}
		var ok bool
		if bases[i], ok = r.layout.parseVersion(m.Key, m.Uid, m.Version); !ok {
			bases[i], possible = base{rev: -1}, false
		}
	}
	return bases, possible
}

// prepare makes the request replace these states. A mutation that is idle compares, but changes nothing.
func (r *request) prepare(bases []base) error {
	n := len(bases)
	r.bases, r.compare, r.changes = bases, make([]*pb.Compare, n, n+2), make([]*pb.RequestOp, 0, maxOpsEach*n)
	r.size, r.receipt = r.guard.size(), receipt{}
	for i := range r.mutations {
		m := &r.mutations[i]
		etcdKey := r.layout.resource(m.Key)
		r.compare[i] = compareRevision(etcdKey, bases[i].rev)
		r.size += 2*len(etcdKey) + 3*opOverhead // the comparison and the read
		switch {
		case m.Verb == driver.Write:
			if err := r.write(etcdKey, m, bases[i]); err != nil {
				return err
			}
			r.receipt = receipt{key: etcdKey, token: r.token, base: bases[i].rev}
		case r.deletes(i):
			r.delete(etcdKey)
			if entry := bases[i].entry; entry != nil {
				r.delete(r.layout.entryKey(entry.owner, m.Key))
			}
		}
	}
	switch {
	case r.receipt.key != nil:
	case !r.exclusive:
		r.receipt = receipt{key: r.key(0), base: bases[0].rev}
	default: // without a write no resource has the token
		r.receipt = receipt{key: []byte(r.layout.receiptKey(r.slot)), token: r.token}
		if len(r.changes) > 0 {
			r.put(r.receipt.key, appendHeader(nil, r.token))
		}
	}
	return nil
}

// write adds the changes that write m.Resource over a state.
func (r *request) write(etcdKey []byte, m *driver.Mutation, from base) error {
	value, err := codec.Append(appendHeader(make([]byte, 0, valueHeader+codec.Size(m.Resource)), r.token), m.Resource)
	if err != nil {
		return err
	}
	r.put(etcdKey, value)
	entry := entryOf(m.Resource)
	if old := from.entry; old != nil && (entry == nil || entry.owner != old.owner) {
		r.delete(r.layout.entryKey(old.owner, m.Key))
	}
	if entry != nil && (from.entry == nil || *from.entry != *entry) {
		r.put(r.layout.entryKey(entry.owner, m.Key), entryValue(m.Resource.GetId()))
	}
	return nil
}

func (r *request) put(etcdKey, value []byte) {
	r.changes = append(r.changes, opPut(etcdKey, value))
	r.size += len(etcdKey) + len(value) + opOverhead
}

func (r *request) delete(etcdKey []byte) {
	r.changes = append(r.changes, opDelete(etcdKey))
	r.size += len(etcdKey) + opOverhead
}

// key returns the etcd key of a mutation.
func (r *request) key(i int) []byte { return r.compare[i].Key }

// deletes reports whether a mutation deletes its key.
func (r *request) deletes(i int) bool {
	return r.mutations[i].Verb == driver.Delete && (r.idle == nil || !r.idle[i])
}

// txn returns the request as a transaction, without the comparisons that all requests of a handle share.
func (r *request) txn() *pb.TxnRequest {
	reads := make([]*pb.RequestOp, len(r.compare), len(r.compare)+3)
	for i := range reads {
		reads[i] = opGet(r.key(i))
	}
	return &pb.TxnRequest{Compare: r.guard.compare(r.compare), Success: r.changes, Failure: r.guard.readRequests(reads)}
}

// outcome returns the outcome in the response to txn. rev is the revision of the response.
func (r *request) outcome(succeeded bool, responses []*pb.ResponseOp, rev int64) outcome {
	if succeeded {
		return outcome{rev: rev}
	}
	o := outcome{values: make([]*mvccpb.KeyValue, len(r.compare)), guardError: r.guard.readError(responses)}
	for i := range o.values {
		o.values[i] = first(responses[i].GetResponseRange().Kvs)
	}
	return o
}

// decide decides every mutation by the stored values. It returns the error of the first mutation that fails. Without an error, resend
// reports whether the request changes anything. The request then compares the stored values.
func (r *request) decide(stored []*mvccpb.KeyValue) (resend bool, err error) {
	bases := make([]base, len(stored))
	r.idle = make([]bool, len(stored))
	for i, kv := range stored {
		var s driver.Stored
		if kv != nil {
			_, res, err := r.layout.decode(kv)
			if err != nil {
				return false, err
			}
			s = driver.Stored{Exists: true, Uid: res.GetId().GetUid(), Version: res.GetVersion()}
			bases[i] = base{rev: kv.ModRevision, entry: entryOf(res)}
		}
		changes, err := r.mutations[i].Decide(s)
		if err != nil {
			return false, &storage.OpError{Index: i, Err: err}
		}
		r.idle[i] = !changes
	}
	switch {
	case !slices.Contains(r.idle, false):
		return false, nil
	case !r.exclusive, slices.EqualFunc(bases, r.bases, func(a, b base) bool { return a.rev == b.rev }):
		return false, errImpossible
	}
	err = r.prepare(bases)
	return err == nil, err
}

// finish sets the results of mutations that were applied at a revision, 0 if there was nothing to change.
func (r *request) finish(rev int64) {
	for i := range r.mutations {
		m := &r.mutations[i]
		if m.Verb == driver.Write {
			m.NewVersion = r.layout.version(m.Key, m.Uid, base{rev: rev, entry: entryOf(m.Resource)})
		}
		if m.Verb == driver.Write || r.deletes(i) {
			m.Revision = rev
		}
	}
}
