//go:build integration

package bench

import (
	"net"
	"sync"
	"testing"
	"time"
)

// roundTrip is the time that a delaying proxy adds to each round trip, as between two machines of a data center.
const roundTrip = time.Millisecond

// delayed starts a proxy for the server at an address, which delivers all bytes half a round trip later in each direction and limits
// no rate. It returns the proxy's address.
func delayed(b *testing.B, addr string) string {
	b.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", addr)
			if err != nil {
				_ = client.Close()
				continue
			}
			running.Go(func() { deliverLater(client, server) })
			running.Go(func() { deliverLater(server, client) })
		}
	})
	b.Cleanup(func() { // clients and servers, which are closed earlier, end the connections
		_ = listener.Close()
		running.Wait()
	})
	return listener.Addr().String()
}

// deliverLater copies bytes until one side closes its connection, and closes both.
func deliverLater(from, to net.Conn) {
	type part struct {
		bytes []byte
		due   time.Time
	}
	parts := make(chan part, 1<<12)
	var writing sync.WaitGroup
	writing.Go(func() {
		for p := range parts {
			time.Sleep(time.Until(p.due))
			if _, err := to.Write(p.bytes); err != nil {
				_ = from.Close() // the reader ends
			}
		}
		_ = to.Close()
	})
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			parts <- part{append([]byte(nil), buffer[:n]...), time.Now().Add(roundTrip / 2)}
		}
		if err != nil {
			break
		}
	}
	close(parts)
	writing.Wait()
	_ = from.Close()
}
