package etcdserver

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/version"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// unknownSize is the reported size of a database of unknown size, in bytes. It is not 0 because etcdctl divides by it.
const unknownSize = 1

// Status implements etcd's Maintenance service. The version is the API version. Clients derive the features of the server from it. The
// size of the database is unknown and reported as one byte.
func (s *Server) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	_, newest, err := s.history.Revisions(ctx)
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	return &pb.StatusResponse{
		Header: header(newest), Version: version.Version, StorageVersion: version.Version, DbSize: unknownSize, DbSizeInUse: unknownSize,
		Leader: member, RaftTerm: 1, RaftIndex: uint64(newest), RaftAppliedIndex: uint64(newest),
		DowngradeInfo: &pb.DowngradeInfo{},
	}, nil
}

// Alarm implements etcd's Maintenance service. There are never alarms, because a write reports a problem of the database itself. Clients
// that check the health of a server by its alarms, as etcdctl endpoint health does, find none, and there is none to disarm.
func (s *Server) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	if r.Action == pb.AlarmRequest_ACTIVATE {
		return nil, status.Error(codes.Unimplemented, "etcdserver: this server does not support raising alarms")
	}
	h, err := s.header(ctx)
	return &pb.AlarmResponse{Header: h}, err
}
