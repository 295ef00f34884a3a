package serve

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// sharedPort lets a gRPC server share its port with HTTP/1 clients, as etcd does. It is the credentials of the gRPC server, and the
// listener of the HTTP server: a connection belongs to the latter unless it begins with the HTTP/2 preface.
type sharedPort struct {
	credentials.TransportCredentials

	config  *tls.Config // nil without TLS
	address net.Addr
	conns   chan net.Conn
	closing sync.Once
	closed  chan struct{}
}

// Protocols of a shared port with TLS. A client that supports both is not a gRPC client, so it gets the first one.
var sharedProtocols = []string{"http/1.1", "h2"}

// http2Preface is the beginning of every HTTP/2 connection.
const http2Preface = "PRI * "

func newSharedPort(certificates *certificates, address net.Addr) *sharedPort {
	p := &sharedPort{
		TransportCredentials: insecure.NewCredentials(), address: address, conns: make(chan net.Conn), closed: make(chan struct{}),
	}
	if certificates != nil {
		p.config = certificates.config(true, sharedProtocols...)
		p.TransportCredentials = credentials.NewTLS(p.config)
	}
	return p
}

// sharedListener is the listener of the gRPC server.
type sharedListener struct{ net.Listener }

func (l sharedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &sharedConn{Conn: conn}, nil
}

// sharedConn is a connection as the gRPC server sees it. After the handshake that server resets the deadline even of a connection that was
// handed off, which would discard the deadline of the new owner.
type sharedConn struct {
	net.Conn
	handedOff atomic.Bool // to the HTTP server
}

// SetDeadline sets the read and write deadlines, unless the connection was handed off.
func (c *sharedConn) SetDeadline(at time.Time) error {
	if c.handedOff.Load() {
		return nil
	}
	return c.Conn.SetDeadline(at)
}

// ServerHandshake is called by the gRPC server for every connection. The connection comes from sharedListener and has a deadline.
func (p *sharedPort) ServerHandshake(accepted net.Conn) (net.Conn, credentials.AuthInfo, error) {
	shared, ok := accepted.(*sharedConn)
	if !ok {
		return nil, nil, fmt.Errorf("the connection is a %T, which cannot be handed off", accepted)
	}
	raw := shared.Conn
	conn, info, err := p.startTLS(raw)
	if err != nil {
		return nil, nil, err
	}
	if secured, ok := info.(credentials.TLSInfo); ok && secured.State.NegotiatedProtocol == "h2" {
		return conn, info, nil
	}
	prefixed := &prefixedConn{Conn: conn, prefix: make([]byte, len(http2Preface))}
	n, err := io.ReadFull(conn, prefixed.prefix)
	prefixed.prefix = prefixed.prefix[:n]
	switch {
	case string(prefixed.prefix) == http2Preface:
		return prefixed, info, nil
	case err != nil:
		_ = conn.Close() // no request is this short
		return nil, nil, err
	}
	shared.handedOff.Store(true)
	if err := raw.SetDeadline(time.Time{}); err != nil {
		_ = conn.Close() // the connection has ended
		return nil, nil, err
	}
	select {
	case p.conns <- prefixed:
		return nil, nil, credentials.ErrConnDispatched
	case <-p.closed:
		_ = conn.Close() // no request was read yet
		return nil, nil, net.ErrClosed
	}
}

// startTLS begins TLS on a connection if it is configured. It does not use gRPC's TLS credentials, because they reject a client that
// negotiates no protocol, and a client of HTTP/1 may do without.
func (p *sharedPort) startTLS(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if p.config == nil {
		return p.TransportCredentials.ServerHandshake(raw)
	}
	conn := tls.Server(raw, p.config)
	if err := conn.Handshake(); err != nil {
		_ = conn.Close() // the handshake error is more useful
		return nil, nil, err
	}
	common := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
	return conn, credentials.TLSInfo{State: conn.ConnectionState(), CommonAuthInfo: common}, nil
}

// Accept returns the next connection of an HTTP/1 client.
func (p *sharedPort) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close stops accepting HTTP/1 clients. The port stays open.
func (p *sharedPort) Close() error {
	p.closing.Do(func() { close(p.closed) })
	return nil
}

// Addr returns the address of the port.
func (p *sharedPort) Addr() net.Addr { return p.address }

// prefixedConn is a connection whose first bytes were already read.
type prefixedConn struct {
	net.Conn
	prefix []byte
}

// Read returns the bytes of the connection, beginning with the prefix.
func (c *prefixedConn) Read(b []byte) (int, error) {
	if len(c.prefix) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.prefix)
	c.prefix = c.prefix[n:]
	return n, nil
}
