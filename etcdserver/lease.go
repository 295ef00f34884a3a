package etcdserver

import (
	"context"
	"strconv"

	"github.com/ashlar-dev/storage/resourcepb"
)

func leaseID(id int64) *resourcepb.ID {
	return &resourcepb.ID{
		Type: &resourcepb.Type{Group: keyGroup, GroupVersion: groupVersion, Kind: "lease"}, Tenancy: &resourcepb.Tenancy{},
		Name: strconv.FormatInt(id, 16), Uid: uid,
	}
}

// attach returns the owner of a key that is put with a lease, nil for none.
func (s *Server) attach(_ context.Context, id int64) (*resourcepb.ID, error) {
	if id == 0 {
		return nil, nil
	}
	return leaseID(id), nil
}
