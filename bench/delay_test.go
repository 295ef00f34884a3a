//go:build integration

package bench

import (
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// roundTrip is the time that a delaying proxy adds to each round trip, as between two machines of a data center.
const roundTrip = time.Millisecond

// delayed starts a proxy for the server at an address, which delivers all bytes half a round trip later in each direction and limits
// no rate. It returns the proxy's address.
func delayed(b *testing.B, addr string) string {
	b.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	link := make(chan parcel, 1<<12)
	var receiving, delivering sync.WaitGroup
	delivering.Go(func() { deliver(link) })
	receiving.Go(func() {
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
			receiving.Go(func() { receive(link, client, server) })
			receiving.Go(func() { receive(link, server, client) })
		}
	})
	b.Cleanup(func() { // clients and servers, which are closed earlier, end the connections
		_ = listener.Close()
		receiving.Wait()
		close(link)
		delivering.Wait()
	})
	return listener.Addr().String()
}

// parcel is a part of a stream on its way. It has no bytes at the end of the stream.
type parcel struct {
	to    net.Conn
	bytes []byte
	due   time.Time
}

// receive reads one connection, and puts the bytes on the link to another.
func receive(link chan<- parcel, from, to net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		due := time.Now().Add(roundTrip / 2)
		if n > 0 {
			link <- parcel{to, append([]byte(nil), buffer[:n]...), due}
		}
		if err != nil {
			link <- parcel{to, nil, due}
			return
		}
	}
}

// deliver writes the parcels of all connections when they are due. It does not use time.Sleep, which rounds to a millisecond in an
// idle process and not in a busy one, so that a side with more requests in flight would have shorter round trips. One sleep for
// all connections costs a side with more of them no more.
func deliver(link <-chan parcel) {
	for p := range link {
		for left := time.Until(p.due); left > 0; left = time.Until(p.due) {
			t := unix.NsecToTimespec(int64(left))
			_ = unix.Nanosleep(&t, nil)
		}
		var err error
		if p.bytes != nil {
			_, err = p.to.Write(p.bytes)
		}
		if p.bytes == nil || err != nil {
			_ = p.to.Close() // its reader ends the other direction
		}
	}
}
