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

// What belongs to the database behind a store, or to whoever lets callers in, is not served.
var (
	errNoMembers = status.Error(codes.Unimplemented,
		"etcdserver: this server has no members to list or change; those of the database behind it are managed there")
	errNoFiles = status.Error(codes.Unimplemented,
		"etcdserver: this server knows of no files to save, hash or defragment; back up the database behind it by its own means")
	errNoUsers = status.Error(codes.Unimplemented,
		"etcdserver: this server has no users and roles; it knows callers by their certificates, where it asks for some")
)

// Defragment implements etcd's Maintenance service, and is refused.
func (*Server) Defragment(context.Context, *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	return nil, errNoFiles
}

// Hash implements etcd's Maintenance service, and is refused.
func (*Server) Hash(context.Context, *pb.HashRequest) (*pb.HashResponse, error) {
	return nil, errNoFiles
}

// HashKV implements etcd's Maintenance service, and is refused.
func (*Server) HashKV(context.Context, *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	return nil, errNoFiles
}

// Snapshot implements etcd's Maintenance service, and is refused.
func (*Server) Snapshot(*pb.SnapshotRequest, grpc.ServerStreamingServer[pb.SnapshotResponse]) error {
	return errNoFiles
}

// MoveLeader implements etcd's Maintenance service, and is refused.
func (*Server) MoveLeader(context.Context, *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	return nil, errNoMembers
}

// Downgrade implements etcd's Maintenance service, and is refused.
func (*Server) Downgrade(context.Context, *pb.DowngradeRequest) (*pb.DowngradeResponse, error) {
	return nil, errNoMembers
}

// AuthStatus implements etcd's Auth service, of which it is all that is served: there is no authentication by users.
func (s *Server) AuthStatus(ctx context.Context, _ *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	h, err := s.header(ctx)
	return &pb.AuthStatusResponse{Header: h, AuthRevision: 1}, err
}

// registerUnsupported adds a service whose methods, all but those named, are answered with an error.
func (s *Server) registerUnsupported(to grpc.ServiceRegistrar, service *grpc.ServiceDesc, reason error, served ...string) {
	refusing := grpc.ServiceDesc{ServiceName: service.ServiceName, HandlerType: (*any)(nil), Metadata: service.Metadata}
	refusal := func(context.Context, any) (any, error) { return nil, reason }
	for _, method := range service.Methods {
		if !slices.Contains(served, method.MethodName) {
			info := &grpc.UnaryServerInfo{Server: s, FullMethod: "/" + service.ServiceName + "/" + method.MethodName}
			method.Handler = func(_ any, ctx context.Context, _ func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
				if interceptor == nil {
					return nil, reason
				}
				return interceptor(ctx, &emptypb.Empty{}, info, refusal) // which counts it, and logs it
			}
		}
		refusing.Methods = append(refusing.Methods, method)
	}
	to.RegisterService(&refusing, s)
}
