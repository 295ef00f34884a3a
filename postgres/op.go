package postgres

import (
	"crypto/rand"
	"crypto/sha256"
	"time"

	"github.com/ashlar-dev/storage/internal/cas"
	"github.com/ashlar-dev/storage/internal/handover"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The kinds of operations, as the statements know them.
const (
	opWrite  int16 = 1
	opDelete int16 = 2
	opCheck  int16 = 3
)

// op is one operation on one key, with all that is known about what became of it.
type op struct {
	kind         int16
	key          key.Key
	keyBytes     []byte
	uid, version string
	expected     []byte // nil: nothing is stored
	token        []byte // random: the new version, or the mark of a deletion
	groupVersion []byte
	owner        []byte
	data         []byte

	applied  bool
	failure  error      // of the database, where the operation alone met it
	busy     bool       // another transaction holds the key
	found    cas.Stored // what is stored, if it was not applied
	revision int64      // of the change; 0 where the answer did not say
	place    int32
	session  uint64        // the one that carried it out
	pooled   bool          // it is one with a pooler
	lost     []*attempt    // attempts whose answer did not come
	travel   time.Duration // the longest time that an attempt took in vain

	guard *handover.Guard // a condition on the whole statement; nil for none
}

func newOp(kind int16, k key.Key, uid, version string) *op {
	o := &op{kind: kind, key: k, keyBytes: k.Bytes(), uid: uid, version: version, token: make([]byte, 16)}
	_, _ = rand.Read(o.token) // never fails
	if version != "" {
		o.expected = versionBytes(version)
	}
	return o
}

func newWrite(k key.Key, res *resourcepb.Resource) (*op, error) {
	o := newOp(opWrite, k, res.GetId().GetUid(), res.GetVersion())
	o.groupVersion = []byte(res.GetId().GetType().GetGroupVersion())
	if res.GetOwner() != nil {
		o.owner = ownerHash(res.GetOwner())
	}
	var err error
	o.data, err = message.Encode(res)
	return o, err
}

func newDelete(k key.Key, id *resourcepb.ID, version string) *op {
	o := newOp(opDelete, k, id.GetUid(), version)
	if o.expected == nil {
		o.expected = []byte{} // matches nothing
	}
	o.groupVersion, o.data = []byte{}, []byte{} // of a row that holds the place of nothing
	return o
}

func newCheck(k key.Key, id *resourcepb.ID, version string) *op {
	o := newOp(opCheck, k, id.GetUid(), version)
	o.groupVersion, o.data = []byte{}, []byte{}
	return o
}

// ownerHash stands for an owner's key and uid, which together may be too long for an index.
func ownerHash(owner *resourcepb.ID) []byte {
	h := sha256.New()
	h.Write(key.Of(owner).Bytes())
	h.Write([]byte{0})
	h.Write([]byte(owner.GetUid()))
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
	switch o.kind {
	case opWrite:
		err = cas.Write(o.found, o.uid, o.version)
		return err == nil, err
	case opDelete:
		return cas.Delete(o.found, o.uid, o.version)
	default:
		return false, cas.Check(o.found, o.uid, o.version)
	}
}

// refused reports whether the last answer was a no, rather than that it is to be tried again.
func (o *op) refused() bool {
	again, err := o.decide()
	return !o.applied && !again && (err != nil || o.kind == opDelete)
}

// forget takes back what an attempt said that was not committed.
func (o *op) forget() {
	o.applied, o.failure, o.busy, o.found, o.revision, o.place = false, nil, false, cas.Stored{}, 0, 0
}

// answered takes note of what a statement found under the key: nil versions for nothing.
func (o *op) answered(uid, version []byte, busy bool) {
	o.forget()
	o.busy = busy
	if version != nil {
		o.found = cas.Stored{Exists: true, Uid: string(uid), Version: versionText(version)}
	}
}

// done takes note that the operation was carried out, as the change with this number.
func (o *op) done(revision int64, place int32) {
	o.forget()
	o.applied, o.revision, o.place = true, revision, place
}
