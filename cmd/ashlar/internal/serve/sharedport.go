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

// sharedPort are the credentials of a gRPC server at whose port clients of HTTP/1 are served as well, as etcd's are. It is the listener of
// these: a connection is theirs unless it begins as one of HTTP/2.
type sharedPort struct {
	credentials.TransportCredentials

	config  *tls.Config // nil without TLS
	address net.Addr
	conns   chan net.Conn
	closing sync.Once
	closed  chan struct{}
}

// The protocols of a shared port, with TLS. A client that speaks both, and so is none of gRPC, is to have the first one.
var sharedProtocols = []string{"http/1.1", "h2"}

// http2Preface is what only clients of HTTP/2 begin with.
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

// sharedConn is a connection as the gRPC server has it. That server takes back the time that it has given the client, also where it has been told
// that the connection is not its own any more: the time that whoever owns it now has given.
type sharedConn struct {
	net.Conn
	handedOff atomic.Bool // to somebody else
}

// SetDeadline sets the time for reading and writing.
func (c *sharedConn) SetDeadline(at time.Time) error {
	if c.handedOff.Load() {
		return nil
	}
	return c.Conn.SetDeadline(at)
}

// ServerHandshake is called by the gRPC server with every connection, which comes from lending and is given a time to come to its end.
func (p *sharedPort) ServerHandshake(accepted net.Conn) (net.Conn, credentials.AuthInfo, error) {
	borrowed, is := accepted.(*sharedConn)
	if !is {
		return nil, nil, fmt.Errorf("the connection is a %T, and not one that can be given away", accepted)
	}
	raw := borrowed.Conn
	conn, info, err := p.startTLS(raw)
	if err != nil {
		return nil, nil, err
	}
	if secured, ok := info.(credentials.TLSInfo); ok && secured.State.NegotiatedProtocol == "h2" {
		return conn, info, nil
	}
	begun := &prefixedConn{Conn: conn, prefix: make([]byte, len(http2Preface))}
	n, err := io.ReadFull(conn, begun.prefix)
	begun.prefix = begun.prefix[:n]
	switch {
	case string(begun.prefix) == http2Preface:
		return begun, info, nil
	case err != nil:
		_ = conn.Close() // no request is as short as that
		return nil, nil, err
	}
	borrowed.handedOff.Store(true)
	if err := raw.SetDeadline(time.Time{}); err != nil {
		_ = conn.Close() // it has ended
		return nil, nil, err
	}
	select {
	case p.conns <- begun:
		return nil, nil, credentials.ErrConnDispatched
	case <-p.closed:
		_ = conn.Close() // nothing was said there that could be lost
		return nil, nil, net.ErrClosed
	}
}

// startTLS begins TLS on a connection, if that is set up. The credentials of gRPC would refuse a client that does not say which protocols it
// speaks, as clients of HTTP/1 need not.
func (p *sharedPort) startTLS(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if p.config == nil {
		return p.TransportCredentials.ServerHandshake(raw)
	}
	conn := tls.Server(raw, p.config)
	if err := conn.Handshake(); err != nil {
		_ = conn.Close() // the first error tells more
		return nil, nil, err
	}
	common := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
	return conn, credentials.TLSInfo{State: conn.ConnectionState(), CommonAuthInfo: common}, nil
}

// Accept returns the next connection of a client of HTTP/1.
func (p *sharedPort) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close has no further client of HTTP/1 served. The port stays open.
func (p *sharedPort) Close() error {
	p.closing.Do(func() { close(p.closed) })
	return nil
}

// Addr returns the address of the port.
func (p *sharedPort) Addr() net.Addr { return p.address }

// prefixedConn is a connection of which the first bytes were read.
type prefixedConn struct {
	net.Conn
	prefix []byte
}

// Read reads what the client says, from its first byte on.
func (c *prefixedConn) Read(b []byte) (int, error) {
	if len(c.prefix) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.prefix)
	c.prefix = c.prefix[n:]
	return n, nil
}
