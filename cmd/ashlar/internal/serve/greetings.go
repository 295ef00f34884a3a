package serve

import (
	"errors"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
)

// greetings are the connections on which the client has not introduced itself yet. The graceful stop of a gRPC server waits for each of
// them, before it tells the other clients anything: a port scanner would hold it up.
type greetings struct {
	credentials.TransportCredentials

	mu     sync.Mutex
	closed bool
	open   map[net.Conn]struct{}
}

// introduction is the number of bytes with which a client of HTTP/2 begins: the preface, and the header of its settings.
const introduction = 24 + 9

func newGreetings(creds credentials.TransportCredentials) *greetings {
	return &greetings{TransportCredentials: creds, open: map[net.Conn]struct{}{}}
}

// ServerHandshake is called by the gRPC server with every connection.
func (g *greetings) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if !g.begin(raw) {
		return nil, nil, errors.New("the server is about to stop")
	}
	conn, info, err := g.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		g.end(raw)
		return nil, nil, err
	}
	return &greeting{Conn: conn, all: g, raw: raw, left: introduction}, info, nil
}

func (g *greetings) begin(raw net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.open[raw] = struct{}{}
	}
	return !g.closed
}

func (g *greetings) end(raw net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.open, raw)
}

// close closes these connections, now and from now on.
func (g *greetings) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for raw := range g.open {
		_ = raw.Close() // nothing was said there that could be lost
	}
}

// greeting is a connection that counts what the client has said until it has introduced itself. One goroutine at a time reads it.
type greeting struct {
	net.Conn
	all  *greetings
	raw  net.Conn
	left int
}

// Read reads what the client says.
func (c *greeting) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.left > 0 {
		if c.left -= n; c.left <= 0 {
			c.all.end(c.raw)
		}
	}
	return n, err
}

// Close closes the connection.
func (c *greeting) Close() error {
	c.all.end(c.raw)
	return c.Conn.Close()
}
