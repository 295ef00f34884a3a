package inmem

import (
	"testing"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A scan of the present shows it although history is compacted beyond it while it is read.
func TestScanOfThePresentBesideCompaction(t *testing.T) {
	t.Parallel()
	b := New(nil)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	res := &resourcepb.Resource{Id: &resourcepb.ID{Uid: "u", Name: "n", Type: &resourcepb.Type{Group: "g", Kind: "k"}, Tenancy: &resourcepb.Tenancy{}}}
	rewrite := func() {
		var err error
		if res, err = b.WriteCAS(t.Context(), res); err != nil {
			t.Fatal(err)
		}
	}
	rewrite()
	was, s := res.Version, b.handle.store
	var shown []string
	past, err := s.ReadAt(t.Context(), &driver.PastQuery[position]{}, func(v *driver.Version) error {
		shown = append(shown, string(v.Version))
		rewrite()
		return s.Compact(t.Context(), int64(s.at))
	})
	if err != nil || len(shown) != 1 || shown[0] != was {
		t.Errorf("the scan shows %q, %v, expected version %q", shown, err, was)
	}
	if oldest, _, _ := s.Revisions(t.Context()); oldest <= int64(past.At) {
		t.Errorf("the oldest revision is %d and the scan was at %d: nothing was compacted beyond it", oldest, past.At)
	}
}
