package serve

import (
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// handshakes tracks the connections whose client has not sent its HTTP/2 preface yet. A graceful stop of a gRPC server waits for each of
// them before it notifies the other clients, so a port scanner would delay it.
type handshakes struct {
	credentials.TransportCredentials

	mu      sync.Mutex
	closed  bool
	pending map[net.Conn]struct{}
}

// helloSize is the number of bytes that begin an HTTP/2 connection: the preface, and the header of the settings frame.
const helloSize = 24 + 9

func newHandshakes(creds credentials.TransportCredentials) *handshakes {
	return &handshakes{TransportCredentials: creds, pending: map[net.Conn]struct{}{}}
}

// ServerHandshake is called by the gRPC server for every connection.
func (g *handshakes) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if !g.begin(raw) {
		return nil, nil, errDraining
	}
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		g.end(raw)
		return nil, nil, err
	}
	return &handshakeConn{Conn: conn, all: g, raw: raw, remaining: helloSize}, closableInfo{info, raw}, nil
}

// closableInfo is the information about the security of a connection, with the connection.
type closableInfo struct {
	credentials.AuthInfo
	raw net.Conn
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

// close closes all pending connections, and rejects new ones.
func (g *handshakes) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for raw := range g.pending {
		_ = raw.Close() // no request was read yet
	}
}

// handshakeConn counts the bytes that the client has sent until the HTTP/2 preface is complete. It is read by one goroutine at a time.
type handshakeConn struct {
	net.Conn
	all       *handshakes
	raw       net.Conn
	remaining int
}

// Read reads from the connection and counts the bytes.
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
