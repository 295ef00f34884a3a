package etcdserver

import (
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// Operations of the database behind a store, and of authentication, are not supported.
var (
	errNoMembers = status.Error(codes.Unimplemented,
		"etcdserver: this server has no members to list or change; manage the members of the database itself")
	errNoFiles = status.Error(codes.Unimplemented,
		"etcdserver: this server has no files to save, hash or defragment; back up the database itself")
	errNoUsers = status.Error(codes.Unimplemented,
		"etcdserver: this server has no users and roles; it identifies callers by their certificates, if configured")
)

// Defragment implements etcd's Maintenance service. It is not supported.
func (*Server) Defragment(context.Context, *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	return nil, errNoFiles
}

// Hash implements etcd's Maintenance service. It is not supported.
func (*Server) Hash(context.Context, *pb.HashRequest) (*pb.HashResponse, error) {
	return nil, errNoFiles
}

// HashKV implements etcd's Maintenance service. It is not supported.
func (*Server) HashKV(context.Context, *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	return nil, errNoFiles
}

// Snapshot implements etcd's Maintenance service. It is not supported.
func (*Server) Snapshot(*pb.SnapshotRequest, grpc.ServerStreamingServer[pb.SnapshotResponse]) error {
	return errNoFiles
}

// MoveLeader implements etcd's Maintenance service. It is not supported.
func (*Server) MoveLeader(context.Context, *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	return nil, errNoMembers
}

// Downgrade implements etcd's Maintenance service. It is not supported.
func (*Server) Downgrade(context.Context, *pb.DowngradeRequest) (*pb.DowngradeResponse, error) {
	return nil, errNoMembers
}

// AuthStatus implements etcd's Auth service. It is the only supported method of that service, because there are no users.
func (s *Server) AuthStatus(ctx context.Context, _ *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	h, err := s.header(ctx)
	return &pb.AuthStatusResponse{Header: h, AuthRevision: 1}, err
}

// registerUnsupported adds a service whose methods return an error, except those in supported.
func (s *Server) registerUnsupported(to grpc.ServiceRegistrar, service *grpc.ServiceDesc, reason error, supported ...string) {
	desc := grpc.ServiceDesc{ServiceName: service.ServiceName, HandlerType: (*any)(nil), Metadata: service.Metadata}
	reject := func(context.Context, any) (any, error) { return nil, reason }
	for _, method := range service.Methods {
		if !slices.Contains(supported, method.MethodName) {
			info := &grpc.UnaryServerInfo{Server: s, FullMethod: "/" + service.ServiceName + "/" + method.MethodName}
			method.Handler = func(_ any, ctx context.Context, _ func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
				if interceptor == nil {
					return nil, reason
				}
				return interceptor(ctx, &emptypb.Empty{}, info, reject) // it counts and logs the call
			}
		}
		desc.Methods = append(desc.Methods, method)
	}
	to.RegisterService(&desc, s)
}

// Register adds the services to a gRPC server. Unsupported services are added as well, so that their calls fail with a reason.
func (s *Server) Register(to grpc.ServiceRegistrar) {
	pb.RegisterKVServer(to, s)
	pb.RegisterWatchServer(to, s)
	pb.RegisterLeaseServer(to, s)
	pb.RegisterMaintenanceServer(to, s)
	s.registerUnsupported(to, &pb.Cluster_ServiceDesc, errNoMembers)
	s.registerUnsupported(to, &pb.Auth_ServiceDesc, errNoUsers, "AuthStatus")
}
