package postgres

import (
	"crypto/rand"
	"crypto/sha256"
	"time"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
)

// The kinds of operations, as the statements know them.
const (
	opWrite  int16 = 1
	opDelete int16 = 2
	opCheck  int16 = 3
)

var kinds = map[driver.Verb]int16{driver.Write: opWrite, driver.Delete: opDelete, driver.Check: opCheck}

// op is one operation on one key, with all that is known about what became of it.
type op struct {
	*driver.Mutation
	kind         int16
	keyBytes     []byte
	expected     []byte // nil: nothing is stored
	token        []byte // random: the new version, or the mark of a deletion
	groupVersion []byte
	owner        []byte
	data         []byte

	applied  bool
	failure  error         // of the database, where the operation alone met it
	busy     bool          // another transaction holds the key
	found    driver.Stored // what is stored, if it was not applied
	revision int64         // of the change; 0 where the answer did not say
	place    int32
	session  uint64        // the one that carried it out
	pooled   bool          // it is one with a pooler
	lost     []*attempt    // attempts whose answer did not come
	travel   time.Duration // the longest time that an attempt took in vain

	guard *driver.Guard // a condition on the whole statement; nil for none
}

func newOp(m *driver.Mutation) (o *op, err error) {
	o = &op{Mutation: m, kind: kinds[m.Verb], keyBytes: m.Key.Bytes(), token: make([]byte, 16)}
	_, _ = rand.Read(o.token) // never fails
	switch {
	case m.Version != "":
		o.expected = versionBytes(m.Version)
	case m.Verb == driver.Delete:
		o.expected = []byte{} // matches nothing
	}
	if m.Verb != driver.Write {
		o.groupVersion, o.data = []byte{}, []byte{} // of a row that holds the place of nothing
		return o, nil
	}
	o.groupVersion = []byte(m.Resource.GetId().GetType().GetGroupVersion())
	if owner := m.Resource.GetOwner(); owner != nil {
		o.owner = ownerHash(key.Of(owner), owner.GetUid())
	}
	o.data, err = codec.Encode(m.Resource)
	return o, err
}

// ownerHash stands for an owner's key and uid, which together may be too long for an index.
func ownerHash(owner driver.Key, uid string) []byte {
	h := sha256.New()
	h.Write(owner.Bytes())
	h.Write([]byte{0})
	h.Write([]byte(uid))
	return h.Sum(nil)
}

// updates reports whether the operation can only replace what exists: then it takes effect once at most, however often it is
// sent, because a version never comes back.
func (o *op) updates() bool { return o.kind == opWrite && o.expected != nil }

// changes reports whether the operation is one that changes something.
func (o *op) changes() bool { return o.kind != opCheck }

// decide is what the operation's answer is. again is set if what was found is no longer true: the operation would be done.
func (o *op) decide() (again bool, err error) {
	if o.applied || o.failure != nil {
		return false, o.failure
	}
	if o.busy {
		return true, nil
	}
	return o.Decide(o.found)
}

// refused reports whether the last answer was a no, rather than that it is to be tried again.
func (o *op) refused() bool {
	again, err := o.decide()
	return !o.applied && !again && (err != nil || o.kind == opDelete)
}

// forget takes back what an attempt said that was not committed.
func (o *op) forget() {
	o.applied, o.failure, o.busy, o.found, o.revision, o.place = false, nil, false, driver.Stored{}, 0, 0
}

// answered takes note of what a statement found under the key: nil versions for nothing.
func (o *op) answered(uid, version []byte, busy bool) {
	o.forget()
	o.busy = busy
	if version != nil {
		o.found = driver.Stored{Exists: true, Uid: string(uid), Version: versionText(version)}
	}
}

// done takes note that the operation was carried out, as the change with this number.
func (o *op) done(revision int64, place int32) {
	o.forget()
	o.applied, o.revision, o.place = true, revision, place
}
