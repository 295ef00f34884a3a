package conformance

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
)

// owns demands that exactly these children name owner, in key order. OwnerReferences is an eventual read, so it may take a
// moment, but it has to arrive there.
func (s *suite) owns(owner *resourcepb.ID, children ...*resourcepb.ID) {
	s.Helper()
	s.eventually("OwnerReferences", func() error {
		got, err := s.b.OwnerReferences(s.ctx, owner)
		if err != nil {
			return err
		}
		return compareIDs(got, children)
	})
}

func compareIDs(got, want []*resourcepb.ID) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d references instead of %d:\n got %v\nwant %v", len(got), len(want), got, want)
	}
	for i := range got {
		if !proto.Equal(got[i], want[i]) {
			return fmt.Errorf("reference %d:\n got %v\nwant %v", i, got[i], want[i])
		}
	}
	return nil
}
