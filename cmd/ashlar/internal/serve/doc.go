// Package serve runs the resource service as a complete server: `ashlar serve`. It opens a store and serves its resources over gRPC and
// HTTP, with TLS, tokens, logs, metrics, traces and probes. It also runs the reaper, and drains before it stops.
//
// The server combines package service, the resource service, and package service/web, its HTTP mapping. This package adds everything else
// that a server needs:
//
//	config.go   the configuration and its checks
//	serve.go    composes a server and opens its store
//	server.go   the life of a server, from its listeners to its end
//	tokens.go   authorization: the token file, read by tokenfile.go
//	types.go    the types in a directory of descriptor sets, supplemented by typefile.go
//	ready.go    probes of the store
package serve
