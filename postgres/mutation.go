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

// The kinds of mutations, as in the statements and in the log.
const (
	kindWrite  int16 = 1
	kindDelete int16 = 2
	kindCheck  int16 = 3
)

var kinds = map[driver.Verb]int16{driver.Write: kindWrite, driver.Delete: kindDelete, driver.Check: kindCheck}

// mutation is an encoded mutation, with its outcome as far as known.
type mutation struct {
	*driver.Mutation
	kind            int16
	keyBytes        []byte
	expectedVersion []byte // nil: no resource is stored
	token           []byte // random: the new version, or the token of a deletion
	groupVersion    []byte
	owner           []byte
	data            []byte

	isApplied      bool
	isAnnounced    bool          // the handle's watches know of its change
	failure        error         // error of the database for this mutation alone
	busy           bool          // another transaction holds the key
	conflict       driver.Stored // the stored resource, if the mutation was not applied
	revision       int64         // number of the change
	isFinal        bool          // all changes with lower numbers are visible, or never will be
	index          int32
	createRevision int64         // revision of the creation; 0 if the answer did not contain it
	writes         int64         // number of changes since, including this one
	session        uint64        // the session that applied it
	viaPooler      bool          // the session leads to a pooler
	lostAttempts   []*attempt    // attempts without an answer
	travel         time.Duration // maximum time that an attempt took without success
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
		m.groupVersion, m.data = []byte{}, []byte{} // of a placeholder for an absent resource
		return m, nil
	}
	m.groupVersion = []byte(d.Resource.GetId().GetType().GetGroupVersion())
	if owner := d.Resource.GetOwner(); owner != nil {
		m.owner = ownerHash(key.Of(owner), owner.GetUid())
	}
	m.data, err = codec.Encode(d.Resource)
	return m, err
}

// presence returns the check that a delete has something to delete.
func (m *mutation) presence() *mutation {
	check := &mutation{
		Mutation: &driver.Mutation{Verb: driver.Check, Key: m.Key, Uid: m.Uid, Version: m.Version}, kind: kindCheck,
		keyBytes: m.keyBytes, expectedVersion: m.expectedVersion, token: make([]byte, versionSize), groupVersion: []byte{}, data: []byte{},
	}
	_, _ = rand.Read(check.token) // never fails
	return check
}

// ownerHash hashes an owner's key and uid, which together may be too long for an index.
func ownerHash(owner driver.Key, uid string) []byte {
	h := sha256.New()
	h.Write(owner.Bytes())
	h.Write([]byte{0})
	h.Write([]byte(uid))
	return h.Sum(nil)
}

// updates reports whether the mutation can only replace an existing resource. Then it takes effect at most once, however often it
// is sent, because versions are never reused.
func (m *mutation) updates() bool { return m.kind == kindWrite && m.expectedVersion != nil }

// creates reports whether the mutation can only create a resource.
func (m *mutation) creates() bool { return m.kind == kindWrite && m.expectedVersion == nil }

// replaces reports whether mutations can only replace existing resources: at least one, and only if certain versions are stored. Like a
// single update, they take effect at most once.
func replaces(ms []*mutation) bool {
	writes := false
	for _, m := range ms {
		if m.expectedVersion == nil || m.kind == kindDelete {
			return false
		}
		writes = writes || m.kind == kindWrite
	}
	return writes
}

// hasEffect reports whether the mutation changed the store.
func (m *mutation) hasEffect() bool { return m.isApplied && m.kind != kindCheck }

// decide returns the result of the mutation. again is set if its conflict no longer exists, so that a retry would apply it.
func (m *mutation) decide() (again bool, err error) {
	if m.isApplied || m.failure != nil {
		return false, m.failure
	}
	if m.busy {
		return true, nil
	}
	return m.Decide(m.conflict)
}

// hasRefusal reports whether the last answer was a refusal, and not a reason to retry.
func (m *mutation) hasRefusal() bool {
	again, err := m.decide()
	return !m.isApplied && !again && (err != nil || m.kind == kindDelete)
}

// reset discards the result of an attempt that was not committed.
func (m *mutation) reset() {
	m.isApplied, m.failure, m.busy, m.conflict = false, nil, false, driver.Stored{}
	m.revision, m.isFinal, m.index, m.createRevision, m.writes = 0, false, 0, 0, 0
}

// setStored records the conflict that a statement found instead of applying the mutation: a nil version for an absent resource.
func (m *mutation) setStored(uid, version []byte, busy bool) {
	m.reset()
	m.busy = busy
	if version != nil {
		m.conflict = driver.Stored{Exists: true, Uid: string(uid), Version: versionText(version)}
	}
}

// setApplied records that the mutation was applied, as the change with a number.
func (m *mutation) setApplied(revision int64, place int32, created, writes int64) {
	m.reset()
	m.isApplied, m.revision, m.index, m.createRevision, m.writes = true, revision, place, created, writes
}

// setFound records that an earlier attempt has applied the mutation. The feed must read the change.
func (m *mutation) setFound(revision int64) {
	m.reset()
	m.isApplied, m.revision = true, revision
}

// withLost returns the mutations that have a lost attempt and are not known to be applied.
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

// versionText returns the version for callers.
func versionText(version []byte) string {
	var room [32]byte // for a version of versionSize, which then takes a single allocation
	return string(base64.RawURLEncoding.AppendEncode(room[:0], version))
}

// versionBytes decodes versionText. For a text that this backend did not create, it returns bytes that match no version.
func versionBytes(text string) []byte {
	version, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(version) != versionSize || versionText(version) != text { // decoding skips line breaks
		return []byte{}
	}
	return version
}

// attempt is one writing statement, whose answer may be lost.
//
// Each mutation has a random token, which it stores in the resource and in the log. So a later statement can find out whether an
// earlier one took effect, whatever happened to the resource since. An update or a deletion can be sent again at once: versions
// are never reused, so it takes effect at most once, even if the lost attempt is still on its way. A creation could take effect
// twice, before and after a deletion by others. A statement with a creation therefore holds a lock of its own until its commit,
// and does nothing if it was revoked before. So it can be revoked even behind a pooler that delivers it at any time, and
// regardless of clocks.
type attempt struct {
	lock    int64 // key of its advisory lock; 0: none
	expires time.Time
	floor   int64 // its numbers are higher; it does nothing if the server has not drawn this one
	isDone  bool  // it cannot take effect any more
}

// maxTravel is the maximum additional travel time of a retry.
const maxTravel = time.Minute

// extraTravel returns the additional travel time of the next attempt. It must exceed the time of an earlier unsuccessful attempt,
// because the link may be slow for so many bytes.
func extraTravel(ms []*mutation) time.Duration {
	var longest time.Duration
	for _, m := range ms {
		longest = max(longest, m.travel)
	}
	return min(2*longest, maxTravel)
}
