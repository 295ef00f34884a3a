package postgres

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"time"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
)

// The kinds of mutations, as the statements and the log of changes know them.
const (
	kindWrite  int16 = 1
	kindDelete int16 = 2
	kindCheck  int16 = 3
)

var kinds = map[driver.Verb]int16{driver.Write: kindWrite, driver.Delete: kindDelete, driver.Check: kindCheck}

// mutation is one mutation, ready to be sent, with all that is known about what became of it.
type mutation struct {
	*driver.Mutation
	kind            int16
	keyBytes        []byte
	expectedVersion []byte // nil: nothing is stored
	token           []byte // random: the new version, or the mark of a deletion
	groupVersion    []byte
	owner           []byte
	data            []byte

	isApplied      bool
	failure        error         // of the database, where the mutation alone met it
	busy           bool          // another transaction holds the key
	conflict       driver.Stored // what stands under the key, if it was not applied
	revision       int64         // of the change
	isFinal        bool          // all changes with lower numbers are there, or never will be
	index          int32
	createRevision int64         // revision of the creation; 0 if the answer did not contain it
	writes         int64         // changes since, this one included
	session        uint64        // the one that carried it out
	viaPooler      bool          // it is one with a pooler
	lostAttempts   []*attempt    // attempts whose answer did not come
	travel         time.Duration // the longest time that an attempt took in vain
}

func newMutation(d *driver.Mutation) (m *mutation, err error) {
	m = &mutation{Mutation: d, kind: kinds[d.Verb], keyBytes: d.Key.Bytes(), token: make([]byte, versionSize)}
	_, _ = rand.Read(m.token) // never fails
	switch {
	case d.Version != "":
		m.expectedVersion = versionBytes(d.Version)
	case d.Verb == driver.Delete:
		m.expectedVersion = []byte{} // matches nothing
	}
	if d.Verb != driver.Write {
		m.groupVersion, m.data = []byte{}, []byte{} // of a row that holds the place of nothing
		return m, nil
	}
	m.groupVersion = []byte(d.Resource.GetId().GetType().GetGroupVersion())
	if owner := d.Resource.GetOwner(); owner != nil {
		m.owner = ownerHash(key.Of(owner), owner.GetUid())
	}
	m.data, err = codec.Encode(d.Resource)
	return m, err
}

// presence returns the check that a delete finds what it is to delete.
func (m *mutation) presence() *mutation {
	check := &mutation{
		Mutation: &driver.Mutation{Verb: driver.Check, Key: m.Key, Uid: m.Uid, Version: m.Version}, kind: kindCheck,
		keyBytes: m.keyBytes, expectedVersion: m.expectedVersion, token: make([]byte, versionSize), groupVersion: []byte{}, data: []byte{},
	}
	_, _ = rand.Read(check.token) // never fails
	return check
}

// ownerHash stands for an owner's key and uid, which together may be too long for an index.
func ownerHash(owner driver.Key, uid string) []byte {
	h := sha256.New()
	h.Write(owner.Bytes())
	h.Write([]byte{0})
	h.Write([]byte(uid))
	return h.Sum(nil)
}

// updates reports whether the mutation can only replace what exists: then it takes effect once at most, however often it is
// sent, because a version never comes back.
func (m *mutation) updates() bool { return m.kind == kindWrite && m.expectedVersion != nil }

// hasEffect reports whether the mutation changed the store.
func (m *mutation) hasEffect() bool { return m.isApplied && m.kind != kindCheck }

// decide is what the mutation's answer is. again is set if what was found is no longer true: the mutation would be applied.
func (m *mutation) decide() (again bool, err error) {
	if m.isApplied || m.failure != nil {
		return false, m.failure
	}
	if m.busy {
		return true, nil
	}
	return m.Decide(m.conflict)
}

// hasRefusal reports whether the last answer was a no, rather than that it is to be tried again.
func (m *mutation) hasRefusal() bool {
	again, err := m.decide()
	return !m.isApplied && !again && (err != nil || m.kind == kindDelete)
}

// reset takes back what an attempt said that was not committed.
func (m *mutation) reset() {
	m.isApplied, m.failure, m.busy, m.conflict = false, nil, false, driver.Stored{}
	m.revision, m.isFinal, m.index, m.createRevision, m.writes = 0, false, 0, 0, 0
}

// setStored takes note of what a statement found under the key instead of applying the mutation: a nil version for nothing.
func (m *mutation) setStored(uid, version []byte, busy bool) {
	m.reset()
	m.busy = busy
	if version != nil {
		m.conflict = driver.Stored{Exists: true, Uid: string(uid), Version: versionText(version)}
	}
}

// setApplied takes note that the mutation was applied, as the change with this number.
func (m *mutation) setApplied(revision int64, place int32, created, writes int64) {
	m.reset()
	m.isApplied, m.revision, m.index, m.createRevision, m.writes = true, revision, place, created, writes
}

// setFound takes note that the mutation was found to be applied. The feed has to read the change.
func (m *mutation) setFound(revision int64) {
	m.reset()
	m.isApplied, m.revision = true, revision
}

// withLost returns the mutations that had an attempt whose answer was lost, and of which it is not known that they were applied.
func withLost(ms []*mutation) []*mutation {
	return filterMutations(ms, func(m *mutation) bool { return len(m.lostAttempts) > 0 && !m.isApplied })
}

func filterMutations(ms []*mutation, is func(*mutation) bool) (some []*mutation) {
	for _, m := range ms {
		if is(m) {
			some = append(some, m)
		}
	}
	return some
}

const versionSize = 16

// versionText is the version that callers see.
func versionText(version []byte) string { return base64.RawURLEncoding.EncodeToString(version) }

// versionBytes undoes versionText. Text that this backend never made gives bytes that match nothing.
func versionBytes(text string) []byte {
	version, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(version) != versionSize || versionText(version) != text { // decoding skips line breaks
		return []byte{}
	}
	return version
}

// attempt is one statement that writes, and whose answer may be lost.
//
// Every mutation carries a random token, which it leaves in the resource and in the log of changes. So a later statement can
// tell whether an earlier one took effect, whatever happened to the resource since. An update or a deletion can then be sent
// again at once: a version never comes back, so it takes effect once at most, also if the lost attempt is still on its way. What
// can create something could happen twice, on both sides of somebody's deletion. Such a statement holds a lock of its own while
// it runs and commits, and does nothing if it was revoked before; so it can be given up, also behind a pooler that delivers it
// whenever it likes, and whatever the clocks say.
type attempt struct {
	lock    int64 // an advisory lock; 0: it holds none
	expires time.Time
	floor   int64 // its numbers are higher: it does nothing where that is still to be drawn
	isDone  bool  // it was seen to be over for good
}

// maxTravel bounds how much longer than the first attempt a later one may take.
const maxTravel = time.Minute

// extraTravel is how much longer than usual the next attempt of mutations may be on its way: it has to be more than an earlier one took
// in vain, since the link may be slow for so many bytes.
func extraTravel(ms []*mutation) time.Duration {
	var longest time.Duration
	for _, m := range ms {
		longest = max(longest, m.travel)
	}
	return min(2*longest, maxTravel)
}
