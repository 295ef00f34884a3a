// Package dial lets a caller of storage.Open decide how the connections of the store are made: to see where they lead to, and to
// lead them through something that disturbs them. Names, certificates and credentials stay those of the URL.
package dial

import (
	"context"
	"net"
)

// Func makes a connection, as net.Dialer.DialContext does.
type Func = func(ctx context.Context, network, address string) (net.Conn, error)

type key struct{}

// With returns a context for storage.Open.
func With(ctx context.Context, f Func) context.Context { return context.WithValue(ctx, key{}, f) }

// From returns the function that With was given, or nil.
func From(ctx context.Context) Func {
	f, _ := ctx.Value(key{}).(Func)
	return f
}
