package service

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// consulPackage is the proto package of the compatible API, and consulFile the path of its schema.
const (
	consulPackage = "hashicorp.consul.resource"
	consulFile    = "pbresource/resource.proto"
)

// consulDesc is the service description under the name of the compatible API. The wire formats differ in the name only.
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

// Register registers the service as ashlar.resource.v1.ResourceService and as hashicorp.consul.resource.ResourceService. Clients of both names
// access the same resources. The history service is not part of the compatible API and is registered as ashlar.resource.v1.HistoryService only.
//
// Interceptors and stats handlers get the name that the client called, as does grpc.Method for the context of a call.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	r.RegisterService(&resourcegrpc.ResourceService_ServiceDesc, s)
	r.RegisterService(&consulDesc, s)
	r.RegisterService(&resourcegrpc.HistoryService_ServiceDesc, s)
}

// RegisterHealth registers the health service of gRPC and reports as serving the server as a whole, the name "", and the resource service under
// both of its names. Shutdown of the returned value reports all of them as not serving, and Resume as serving again.
func RegisterHealth(r grpc.ServiceRegistrar) *health.Server {
	h := health.NewServer() // it reports "" as serving from the start
	for _, name := range []string{resourcegrpc.ResourceService_ServiceDesc.ServiceName, consulDesc.ServiceName} {
		h.SetServingStatus(name, healthpb.HealthCheckResponse_SERVING)
	}
	healthpb.RegisterHealthServer(r, h)
	return h
}

// withMethodName wraps the handler of a unary method so that interceptors get another method name. Generated handlers contain the name that they were
// generated for. For streams the gRPC server passes the called name itself.
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
