package service

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// consulPackage is the proto package of the API that this one is compatible with, and consulFile the path of its schema.
const (
	consulPackage = "hashicorp.consul.resource"
	consulFile    = "pbresource/resource.proto"
)

// consulDesc is the description of our service under the name of the API that it is consulDesc with: on the wire the two differ in
// nothing else.
var consulDesc = func() grpc.ServiceDesc {
	desc := resourcegrpc.ResourceService_ServiceDesc
	desc.ServiceName = consulPackage + ".ResourceService"
	desc.Metadata = consulFile
	desc.Methods = slices.Clone(desc.Methods)
	for i, m := range desc.Methods {
		desc.Methods[i].Handler = withMethodName("/"+desc.ServiceName+"/"+m.MethodName, m.Handler)
	}
	return desc
}()

// Register registers the service under ashlar.resource.v1.ResourceService and under hashicorp.consul.resource.ResourceService. Clients
// of either name see the same resources. The history service, which is not part of the compatible API, is registered under
// ashlar.resource.v1.HistoryService.
//
// Interceptors and stats handlers are told the name that the client called, which grpc.Method returns for the context of a call, too.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	r.RegisterService(&resourcegrpc.ResourceService_ServiceDesc, s)
	r.RegisterService(&consulDesc, s)
	r.RegisterService(&resourcegrpc.HistoryService_ServiceDesc, s)
}

// RegisterHealth registers the health service of gRPC, and says that the server as a whole, the name "", and the resource service under
// either of its names are serving. Shutdown of the returned value says for all of them that they are not, and Resume that they are again.
func RegisterHealth(r grpc.ServiceRegistrar) *health.Server {
	h := health.NewServer() // it serves "" from the beginning
	for _, name := range []string{resourcegrpc.ResourceService_ServiceDesc.ServiceName, consulDesc.ServiceName} {
		h.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	healthpb.RegisterHealthServer(r, h)
	return h
}

// withMethodName makes the handler of a unary method one whose interceptor is told that name. Generated handlers hold the name that they were
// generated for; those of streams are told the name on the wire by the gRPC server itself.
func withMethodName(name string, handle grpc.MethodHandler) grpc.MethodHandler {
	return func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		if interceptor == nil {
			return handle(srv, ctx, decode, nil)
		}
		return handle(srv, ctx, decode, func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return interceptor(ctx, req, &grpc.UnaryServerInfo{Server: info.Server, FullMethod: name}, next)
		})
	}
}
