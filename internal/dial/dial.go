// Package dial lets a caller of storage.Open replace the function that dials the store's connections, for example to inspect their
// addresses or to inject faults. Names, certificates and credentials are still taken from the URL.
package dial

import (
	"context"
	"net"
)

// Func dials a connection, like net.Dialer.DialContext.
type Func = func(ctx context.Context, network, address string) (net.Conn, error)

type key struct{}

// With returns a context for storage.Open.
func With(ctx context.Context, f Func) context.Context { return context.WithValue(ctx, key{}, f) }

// From returns the function passed to With, or nil.
func From(ctx context.Context) Func {
	f, _ := ctx.Value(key{}).(Func)
	return f
}
