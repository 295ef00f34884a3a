package serve

import (
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// handshakes are the connections on which the client has not introduced itself yet. The graceful stop of a gRPC server waits for each of
// them, before it tells the other clients anything: a port scanner would hold it up.
type handshakes struct {
	credentials.TransportCredentials

	mu      sync.Mutex
	closed  bool
	pending map[net.Conn]struct{}
}

// helloSize is the number of bytes with which a client of HTTP/2 begins: the preface, and the header of its settings.
const helloSize = 24 + 9

func newHandshakes(creds credentials.TransportCredentials) *handshakes {
	return &handshakes{TransportCredentials: creds, pending: map[net.Conn]struct{}{}}
}

// ServerHandshake is called by the gRPC server with every connection.
func (g *handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if !g.begin(raw) {
		return nil, nil, errors.New("the server is about to stop")
	}
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		g.end(raw)
		return nil, nil, err
	}
	return &handshakeConn{Conn: conn, all: g, raw: raw, remaining: helloSize}, info, nil
}

func (g *handshakes) begin(raw net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.pending[raw] = struct{}{}
	}
	return !g.closed
}

func (g *handshakes) end(raw net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.pending, raw)
}

// close closes these connections, now and from now on.
func (g *handshakes) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for raw := range g.pending {
		_ = raw.Close() // nothing was said there that could be lost
	}
}

// handshakeConn is a connection that counts what the client has said until it has introduced itself. One goroutine at a time reads it.
type handshakeConn struct {
	net.Conn
	all       *handshakes
	raw       net.Conn
	remaining int
}

// Read reads what the client says.
func (c *handshakeConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.remaining > 0 {
		if c.remaining -= n; c.remaining <= 0 {
			c.all.end(c.raw)
		}
	}
	return n, err
}

// Close closes the connection.
func (c *handshakeConn) Close() error {
	c.all.end(c.raw)
	return c.Conn.Close()
}
