package migrate

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Kind is the kind of a difference under a key.
type Kind string

// The kinds of differences.
const (
	// Missing is a resource of the source that the target does not have.
	Missing Kind = "missing"
	// Extra is a resource of the target that the source does not have.
	Extra Kind = "extra"
	// Different is a resource that differs in anything but its version, such as the uid, the owner or the payload.
	Different Kind = "different"
	// Reference is a resource of one side that OwnerReferences there omits, returns with another uid or group version, or returns
	// although the resource does not name the owner.
	Reference Kind = "reference"
	// Column is a resource of one side for which the database stores a part a second time, such as its uid or owner, with another value, in the
	// wrong place, or not at all. Such parts are the columns of Postgres and SQLite, the owner entries of etcd, and the keys and edges of DynamoDB.
	Column Kind = "column"
)

// Difference is a key with a difference.
type Difference struct {
	Kind Kind
	// Source and Target are the resources in the two stores, or nil.
	Source, Target *resourcepb.Resource
}

// String returns the kind and the key.
func (d Difference) String() string {
	res := d.Source
	if res == nil {
		res = d.Target
	}
	return fmt.Sprintf("%s: %v", d.Kind, key.Of(res.GetId()))
}

// Report is the result of a comparison.
type Report struct {
	// Source and Target are the numbers of resources on the two sides.
	Source, Target int
	// Missing, Extra, Different, References and Columns count the differences.
	Missing, Extra, Different, References, Columns int
	// Bytes is the encoded size of the source's resources, Largest the size of the largest one.
	Bytes, Largest int64
	// SourceDigest and TargetDigest are hashes over all resources in key order, without versions. Equal stores have equal digests,
	// whatever their databases.
	SourceDigest, TargetDigest string
}

// Equal reports whether both sides are equal.
func (r *Report) Equal() bool {
	return r.Missing == 0 && r.Extra == 0 && r.Different == 0 && r.References == 0 && r.Columns == 0
}

// String returns a summary in one sentence.
func (r *Report) String() string {
	if r.Equal() {
		return fmt.Sprintf("equal: %d resources, %d bytes, sha256 %.16s", r.Source, r.Bytes, r.SourceDigest)
	}
	text := fmt.Sprintf("different: source %d, target %d resources; %d missing, %d extra, %d different", r.Source, r.Target,
		r.Missing, r.Extra, r.Different)
	if r.References > 0 {
		text += fmt.Sprintf(", %d wrong owner references", r.References)
	}
	if r.Columns > 0 {
		text += fmt.Sprintf(", %d rows that contradict their resources", r.Columns)
	}
	return text
}

// tally counts and hashes the entries of a join.
type tally struct {
	r              Report
	source, target hash.Hash
}

func newTally() *tally { return &tally{source: sha256.New(), target: sha256.New()} }

// add adds both sides' entries of a key, and returns the kind of their difference, or "" if they are equal.
func (t *tally) add(a, b *entry) (Kind, error) {
	left, right := a.data(), b.data()
	same := bytes.Equal(left, right)
	if a != nil && b != nil && !same {
		// An older program may have encoded it in another order.
		var err error
		if left, err = a.reencode(); err != nil {
			return "", err
		}
		if right, err = b.reencode(); err != nil {
			return "", err
		}
		same = bytes.Equal(left, right)
	}
	if a != nil {
		t.r.Source++
		t.r.Bytes += int64(len(left))
		t.r.Largest = max(t.r.Largest, int64(len(left)))
		sum(t.source, left)
	}
	if b != nil {
		t.r.Target++
		sum(t.target, right)
	}
	switch {
	case b == nil:
		t.r.Missing++
		return Missing, nil
	case a == nil:
		t.r.Extra++
		return Extra, nil
	case !same:
		t.r.Different++
		return Different, nil
	}
	return "", nil
}

func sum(h hash.Hash, data []byte) {
	var size [8]byte
	binary.BigEndian.PutUint64(size[:], uint64(len(data)))
	h.Write(size[:])
	h.Write(data)
}

func (t *tally) report() *Report {
	r := t.r
	r.SourceDigest = hex.EncodeToString(t.source.Sum(nil))
	r.TargetDigest = hex.EncodeToString(t.target.Sum(nil))
	return &r
}
