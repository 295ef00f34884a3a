// Package service is the resource service: typed resources over any storage backend, with what stands between a client and a store.
// It completes and checks what is written by the hooks of a registry's types, asks whether the caller may, keeps owners, statuses,
// generations and finalizers in order, and leaves a tombstone where something is deleted, so that what it owned can be deleted too.
//
//	server := service.New(backend, types, nil)
//	s := grpc.NewServer()
//	server.Register(s)           // under our name and under that of the API that this one is compatible with
//	server.RegisterReflection(s) // for grpcurl and its like, with the schemas of the registry's payloads
//	service.RegisterHealth(s)    // for load balancers
//
// In the same process no gRPC is needed: Server.Client is a client that calls the server's methods.
package service
