// Package proxy is a TCP proxy that breaks connections at chosen moments.
//
// A client connects to [Proxy.Addr] instead of to the server. The proxy passes bytes on, until somebody wants trouble:
//
//   - [Proxy.Cut] breaks all connections now. [Proxy.Refuse] does so too and turns new ones away, [Proxy.Stall] lets
//     connections stand while nothing moves on them; both last until [Proxy.Resume].
//   - [Proxy.SetRate] makes the link slow: all connections share so many bytes a second in each direction.
//   - [Proxy.CutRequest], [Proxy.CutAnswer], [Proxy.HoldAnswer] and [Proxy.CutAnswerAfter] lie in wait for bytes and
//     break only the connection that carries them, once. These give the three outcomes a client cannot tell apart: the
//     server never saw the request; it carried it out and the answer was lost; the answer was torn.
//
// The proxy looks at bytes, not at protocols: on an encrypted connection it finds nothing. A pattern is found wherever
// the pieces of a stream are split. A connection is broken by a reset, so that both ends notice at once.
package proxy
