package postgres

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage/internal/cas"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The kinds of operations, as the statements know them. A placeholder is a resource that is created and removed again in one
// transaction: while it is there, nobody else can create the key.
const (
	opWrite       int16 = 1
	opDelete      int16 = 2
	opCheck       int16 = 3
	opPlaceholder int16 = 4
)

// op is one operation on one key, with what became of it.
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

	applied bool
	found   cas.Stored // what is stored, if it was not applied
	logged  logged
}

// logged is where an operation that was applied stands in the log of changes. It is zero where the answer did not say.
type logged struct {
	xid      uint64
	seq      int64
	replaced uint64 // the transaction that wrote what was there before
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

// ownerHash stands for an owner's key and uid, which together may be too long for an index.
func ownerHash(owner *resourcepb.ID) []byte {
	h := sha256.New()
	h.Write(key.Of(owner).Bytes())
	h.Write([]byte{0})
	h.Write([]byte(owner.GetUid()))
	return h.Sum(nil)
}

// decide is what the operation's answer is. again is set if what was found is no longer true: the operation would be done.
func (o *op) decide() (again bool, err error) {
	if o.applied {
		return false, nil
	}
	switch o.kind {
	case opWrite:
		err = cas.Write(o.found, o.uid, o.version)
		return err == nil, err
	case opDelete:
		return cas.Delete(o.found, o.uid, o.version)
	case opPlaceholder:
		err = cas.Check(o.found, o.uid, o.version)
		return err == nil, err
	default:
		return false, cas.Check(o.found, o.uid, o.version)
	}
}

// storedRow is what a statement found for a key.
type storedRow struct {
	uid, version []byte // nil: nothing
	xmin         pgtype.Uint32
}

func (o *op) answer(applied bool, stored *storedRow, seq int64, xid uint64) {
	o.applied, o.found, o.logged = applied, cas.Stored{}, logged{}
	switch {
	case applied && stored.xmin.Valid && bytes.Equal(stored.version, o.expected):
		o.logged = logged{xid: xid, seq: seq, replaced: since(stored.xmin.Uint32, xid)}
	case !applied && stored.version != nil:
		o.found = cas.Stored{Exists: true, Uid: string(stored.uid), Version: versionText(stored.version)}
	}
}
