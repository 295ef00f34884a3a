package feed

import (
	"context"
	"io"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

type sliceSnapshot struct{ resources []*resourcepb.Resource }

// SliceSnapshot returns a snapshot in memory.
func SliceSnapshot(resources []*resourcepb.Resource) driver.Snapshot {
	return &sliceSnapshot{resources}
}

func (s *sliceSnapshot) Next(context.Context) (*resourcepb.Resource, error) {
	if len(s.resources) == 0 {
		return nil, io.EOF
	}
	res := s.resources[0]
	s.resources = s.resources[1:]
	return res, nil
}

func (s *sliceSnapshot) Close() { s.resources = nil }
