package proxy

import (
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"
)

// echo sends every byte back.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String()
}

// send sends n bytes over a connection of its own and returns when they have come back.
func send(t *testing.T, p *Proxy, n int) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := c.Write(make([]byte, n)); err != nil {
			t.Error(err)
		}
	})
	if _, err := io.CopyN(io.Discard, c, int64(n)); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// TestSetRate sends over two connections at once: together they get at most the rate. The lower bound of the speed is one that
// a busy machine reaches, too.
func TestSetRate(t *testing.T) {
	p := start(t, echo(t))
	const rate, each = 1 << 20, 256 << 10
	for _, c := range []struct {
		rate        int
		least, most time.Duration
	}{
		{rate, 2 * each * time.Second / rate, time.Minute},
		{0, 0, time.Minute},
		{4 * rate, 2 * each * time.Second / (4 * rate), time.Minute},
	} {
		p.SetRate(c.rate)
		began := time.Now()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { send(t, p, each) })
		}
		wg.Wait()
		if took := time.Since(began); took < c.least || took > c.most {
			t.Errorf("at %d bytes a second, %d bytes took %v, expected %v to %v", c.rate, 2*each, took, c.least, c.most)
		} else {
			t.Logf("at %d bytes a second, %d bytes took %v", c.rate, 2*each, took)
		}
	}
}

// TestSetRateCut breaks a connection whose bytes wait for a link of one byte per second.
func TestSetRateCut(t *testing.T) {
	p := start(t, echo(t))
	p.SetRate(1)
	c, r := dial(t, p)
	if _, err := io.WriteString(c, "many bytes\n"); err != nil {
		t.Fatal(err)
	}
	for p.Connections() == 0 { // a dial is answered before the proxy has taken the connection
		runtime.Gosched()
	}
	p.Cut()
	if err := c.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	_, err := r.ReadByte()
	wantBroken(t, err)
}
