package serve

import (
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
)

// sharedPort are the credentials of a gRPC server at whose port clients of HTTP/1 are served as well, as etcd's are. It is the listener of
// these: a connection is theirs unless it begins as one of HTTP/2.
type sharedPort struct {
	credentials.TransportCredentials

	address net.Addr
	conns   chan net.Conn
	closing sync.Once
	closed  chan struct{}
}

// The protocols of a shared port, with TLS. A client that speaks both, and so is none of gRPC, is to have the first one.
var sharedProtocols = []string{"http/1.1", "h2"}

// preface is what only clients of HTTP/2 begin with.
const preface = "PRI * "

func newSharedPort(creds credentials.TransportCredentials, address net.Addr) *sharedPort {
	return &sharedPort{TransportCredentials: creds, address: address, conns: make(chan net.Conn), closed: make(chan struct{})}
}

// ServerHandshake is called by the gRPC server with every connection, which is given a time to come to its end.
func (p *sharedPort) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := p.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	if secured, ok := info.(credentials.TLSInfo); ok && secured.State.NegotiatedProtocol == "h2" {
		return conn, info, nil
	}
	begun := &begunConn{Conn: conn, begin: make([]byte, len(preface))}
	n, err := io.ReadFull(conn, begun.begin)
	begun.begin = begun.begin[:n]
	switch {
	case string(begun.begin) == preface:
		return begun, info, nil
	case err != nil:
		_ = conn.Close() // no request is as short as that
		return nil, nil, err
	}
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

// begunConn is a connection of which the first bytes were read.
type begunConn struct {
	net.Conn
	begin []byte
}

// Read reads what the client says, from its first byte on.
func (c *begunConn) Read(b []byte) (int, error) {
	if len(c.begin) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.begin)
	c.begin = c.begin[n:]
	return n, nil
}
