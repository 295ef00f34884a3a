package etcdserver

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/version"
)

// Status implements etcd's Maintenance service. The version is that of the API, by which clients tell what the server can do. The size of
// the database is not known here.
func (s *Server) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	_, newest, err := s.history.Revisions(ctx)
	if err != nil {
		return nil, failed(ctx, err)
	}
	return &pb.StatusResponse{
		Header: header(newest), Version: version.Version, StorageVersion: version.Version,
		Leader: member, RaftTerm: 1, RaftIndex: uint64(newest), RaftAppliedIndex: uint64(newest),
		DowngradeInfo: &pb.DowngradeInfo{},
	}, nil
}
