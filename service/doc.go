// Package service implements the resource service: typed resources over any storage backend. It sits between clients and a store. It runs
// the hooks of the registered types, authorizes callers, maintains owners, statuses, generations and finalizers, and leaves a tombstone
// for each deleted resource, so that the resources it owned can be deleted too.
//
//	server := service.New(backend, types, nil)
//	s := grpc.NewServer()
//	server.Register(s)           // under our name and under the name of the compatible API
//	server.RegisterReflection(s) // for grpcurl and similar tools, with the schemas of the registry's payloads
//	service.RegisterHealth(s)    // for load balancers
//
// Callers in the same process need no gRPC: Server.Client returns a client that calls the server's methods.
package service
