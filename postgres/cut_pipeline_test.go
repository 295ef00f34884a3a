//go:build integration

package postgres

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// cutConn loses everything after the first statement of a request of several statements, once it is armed, and everything that follows.
type cutConn struct {
	net.Conn
	armed *atomic.Bool
	isCut bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	if end, several := firstExecute(b); several && c.armed.CompareAndSwap(true, false) {
		c.isCut = true
		_, err := c.Conn.Write(b[:end])
		return len(b), err
	}
	if c.isCut {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// firstExecute returns the end of the first Execute message in whole messages, and whether there is another one.
func firstExecute(b []byte) (end int, several bool) {
	for at := 0; len(b) >= at+5; {
		isExecute := b[at] == 'E'
		at += 1 + int(binary.BigEndian.Uint32(b[at+1:]))
		switch {
		case isExecute && end > 0:
			return end, true
		case isExecute:
			end = at
		}
	}
	return end, false
}

// TestCutPipeline loses the end of a creation of 2 KiB after the server has executed its first statement, which locks the key. The server
// reports the session as active, although it waits for the next statement. The creation is abandoned and sent again.
func TestCutPipeline(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	var armed atomic.Bool
	b := overConnections(t, ctx, server, &Options{Schema: server.Schema(t), Timeout: 100 * time.Second}, func(conn net.Conn) net.Conn {
		return &cutConn{Conn: conn, armed: &armed}
	})
	createdResource(t, ctx, b, "prepared")
	res := orderResource("one", "")
	res.Data = &anypb.Any{TypeUrl: "example.com/t", Value: make([]byte, 2<<10)}
	armed.Store(true)
	bounded, cancel := context.WithTimeout(ctx, 100*time.Second) // pgx takes 15 s to close the connection
	defer cancel()
	if _, err := b.WriteCAS(bounded, res); err != nil {
		t.Errorf("a creation that was sent in part: %v", err)
	}
	if armed.Load() {
		t.Error("the request was not cut")
	}
}
