// Package proxy is a TCP proxy that breaks connections at chosen moments.
//
// A client connects to [Proxy.Addr] instead of to the server. The proxy forwards bytes until one of these calls:
//
//   - [Proxy.Cut] breaks all connections. [Proxy.Refuse] also refuses new ones, [Proxy.Stall] keeps connections open without
//     forwarding; both last until [Proxy.Resume].
//   - [Proxy.SetRate] makes the link slow: all connections share a number of bytes per second in each direction.
//   - [Proxy.CutRequest], [Proxy.CutAnswer], [Proxy.HoldAnswer] and [Proxy.CutAnswerAfter] wait for a pattern and break the
//     connection that carries it, once. They cause the three outcomes that a client cannot distinguish: the server never got
//     the request; it carried the request out and the answer was lost; the answer was cut in the middle.
//
// The proxy matches bytes and knows no protocol, so it finds nothing on an encrypted connection. It finds a pattern wherever
// the reads of a stream are split. It breaks a connection by a reset, so that both ends notice at once.
package proxy
