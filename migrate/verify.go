package migrate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"

	"github.com/ashlar-dev/storage"
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
	// Missing, Extra, Different and References count the differences.
	Missing, Extra, Different, References int
	// Bytes is the encoded size of the source's resources, Largest the size of the largest one.
	Bytes, Largest int64
	// SourceDigest and TargetDigest are hashes over all resources in key order, without versions. Equal stores have equal digests,
	// whatever their databases.
	SourceDigest, TargetDigest string
}

// Equal reports whether both sides are equal.
func (r *Report) Equal() bool {
	return r.Missing == 0 && r.Extra == 0 && r.Different == 0 && r.References == 0
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
	return text
}

// VerifyOptions configure Verify. Nil and zero values are the defaults.
type VerifyOptions struct {
	// OnDifference is called with each difference of resources, in key order, and then with wrong owner references. Its error ends
	// the comparison.
	OnDifference func(Difference) error
	// SkipReferences omits the check of owner references, which needs a request for each owner.
	SkipReferences bool
	// PageSize is the number of resources in a page of a listing, on each side. The default is 500.
	PageSize int
}

// Verify compares two stores. It streams both in key order, with memory for a few pages. A resource that changes during the
// comparison may be reported as different. On each side it also compares the references of every owner that a resource names with
// the resources.
func Verify(ctx context.Context, from, to storage.Backend, opts *VerifyOptions) (*Report, error) {
	o := VerifyOptions{}
	if opts != nil {
		o = *opts
	}
	m := newMigration(from, to, &Options{PageSize: o.PageSize})
	ctx, cancel := withoutDeadline(ctx)
	defer cancel(nil)
	source, err := m.listSource(ctx)
	if err != nil {
		return nil, err
	}
	defer source.close()
	if o.SkipReferences {
		return m.compare(ctx, source, o.OnDifference, nil)
	}
	sides := [2]references{{store: from}, {store: to}}
	r, err := m.compare(ctx, source, o.OnDifference, func(a, b *entry) error {
		for i, e := range []*entry{a, b} {
			if err := sides[i].add(ctx, e); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range sides {
		if err := sides[i].check(ctx); err != nil {
			return nil, fmt.Errorf("compare: %w", err)
		}
	}
	var wrong []Difference
	for _, id := range sides[0].wrong {
		wrong = append(wrong, Difference{Kind: Reference, Source: &resourcepb.Resource{Id: id}})
	}
	for _, id := range sides[1].wrong {
		wrong = append(wrong, Difference{Kind: Reference, Target: &resourcepb.Resource{Id: id}})
	}
	r.References = len(wrong)
	for _, d := range wrong {
		if o.OnDifference == nil {
			break
		}
		if err := o.OnDifference(d); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// compare compares a stream with the target. It calls visit, unless nil, with both entries of each key.
func (m *migration) compare(ctx context.Context, source stream, found func(Difference) error, visit func(a, b *entry) error) (*Report, error) {
	target, err := m.listTarget(ctx)
	if err != nil {
		return nil, err
	}
	defer target.close()
	t := newTally()
	err = join(ctx, source, target, func(a, b *entry) error {
		if visit != nil {
			if err := visit(a, b); err != nil {
				return err
			}
		}
		kind, err := t.add(a, b)
		if err != nil || kind == "" || found == nil {
			return err
		}
		d := Difference{Kind: kind}
		if d.Source, err = a.resource(); err != nil {
			return err
		}
		if d.Target, err = b.resource(); err != nil {
			return err
		}
		return found(d)
	})
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	return t.report(), nil
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
