// Package serve is the resource service as a server that is ready to be run: `ashlar serve`. It opens a store and serves its resources by
// gRPC and by HTTP, with TLS, tokens, logs, metrics, traces and probes, runs the reaper, and drains when it is told to stop.
//
// Two packages have what it puts together: service the resource service, and service/web its HTTP mapping. Here is what a server needs
// beside them:
//
//	config.go   what can be set, and what of it is refused
//	serve.go    composes a server and opens its store
//	server.go   the life of a server, from its listeners to its end
//	tokens.go   who may do what: the token file, read by tokenfile.go
//	types.go    the types in a directory of descriptor sets, named by typefile.go where the sets do not
//	ready.go    whether the store answers
package serve
