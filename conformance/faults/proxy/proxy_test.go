package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/internal/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

// start starts a proxy that ends with the test.
func start(t *testing.T, target string) *Proxy {
	t.Helper()
	p, err := New(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// server answers each line with "ok: " and the line, and records the lines.
type server struct {
	net.Listener
	mu  sync.Mutex
	got []byte
}

func newServer(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{Listener: l}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				r := bufio.NewReader(io.TeeReader(c, s))
				for {
					line, err := r.ReadString('\n')
					if err != nil {
						return
					}
					if _, err := io.WriteString(c, "ok: "+line); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return s
}

func (s *server) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, b...)
	return len(b), nil
}

func (s *server) received(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Contains(s.got, []byte(text))
}

func dial(t *testing.T, p *Proxy) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, bufio.NewReader(c)
}

// talk sends a line and returns the answering line.
func talk(t *testing.T, c net.Conn, r *bufio.Reader, line string) (string, error) {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		return "", err
	}
	return r.ReadString('\n')
}

func wantBroken(t *testing.T, err error) {
	t.Helper()
	if err == nil {
		t.Fatal("the connection is still open")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection hangs")
	}
}

func wantAnswer(t *testing.T, p *Proxy) {
	t.Helper()
	c, r := dial(t, p)
	if got, err := talk(t, c, r, "hello"); err != nil || got != "ok: hello\n" {
		t.Errorf("a new connection got %q, %v, want %q", got, err, "ok: hello\n")
	}
}

func wait(t *testing.T, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(2 * time.Minute):
		t.Fatal("the trap has not sprung")
	}
}

func TestCut(t *testing.T) {
	p := start(t, newServer(t).Addr().String())
	c, r := dial(t, p)
	if got, err := talk(t, c, r, "a"); err != nil || got != "ok: a\n" {
		t.Fatalf("%q, %v", got, err)
	}
	if n := p.Connections(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	p.Cut()
	_, err := talk(t, c, r, "b")
	wantBroken(t, err)
	wantAnswer(t, p)
}

func TestRefuse(t *testing.T) {
	p := start(t, newServer(t).Addr().String())
	p.Refuse()
	c, err := net.Dial("tcp", p.Addr())
	if err == nil {
		defer c.Close()
		_, err = talk(t, c, bufio.NewReader(c), "a")
	}
	wantBroken(t, err)
	p.Resume()
	wantAnswer(t, p)
}

func TestStall(t *testing.T) {
	s := newServer(t)
	p := start(t, s.Addr().String())
	c, r := dial(t, p)
	if _, err := talk(t, c, r, "a"); err != nil {
		t.Fatal(err)
	}
	p.Stall()
	if _, err := io.WriteString(c, "b\n"); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("stalled: %v, want a deadline exceeded", err)
	}
	if s.received("b") {
		t.Error("the server received a request during the stall")
	}
	p.Resume()
	if err := c.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if got, err := r.ReadString('\n'); err != nil || got != "ok: b\n" {
		t.Errorf("after Resume: %q, %v", got, err)
	}
}

func TestCutRequest(t *testing.T) {
	s := newServer(t)
	p := start(t, s.Addr().String())
	trap := p.CutRequest([]byte("COMMIT"))
	c, r := dial(t, p)
	if got, err := talk(t, c, r, "BEGIN"); err != nil || got != "ok: BEGIN\n" {
		t.Fatalf("%q, %v", got, err)
	}
	_, err := talk(t, c, r, "COMMIT")
	wantBroken(t, err)
	wait(t, trap.Sprung())
	wantAnswer(t, p)
	if s.received("COMMIT") {
		t.Error("the server got the request")
	}
	if trap.Disarm() {
		t.Error("a sprung trap could be disarmed")
	}
	c, r = dial(t, p)
	if got, err := talk(t, c, r, "COMMIT"); err != nil || got != "ok: COMMIT\n" {
		t.Errorf("the trap sprang twice: %q, %v", got, err)
	}
}

func TestCutAnswer(t *testing.T) {
	s := newServer(t)
	p := start(t, s.Addr().String())
	trap := p.CutAnswer([]byte("COMMIT"))
	c, r := dial(t, p)
	got, err := talk(t, c, r, "COMMIT")
	wantBroken(t, err)
	if got != "" {
		t.Errorf("%q of the answer came through", got)
	}
	wait(t, trap.Sprung())
	if !s.received("COMMIT\n") {
		t.Error("the server did not get the request")
	}
	wantAnswer(t, p)
}

func TestHoldAnswer(t *testing.T) {
	s := newServer(t)
	p := start(t, s.Addr().String())
	trap := p.HoldAnswer([]byte("put"))
	c, r := dial(t, p)
	if _, err := io.WriteString(c, "put\n"); err != nil {
		t.Fatal(err)
	}
	wait(t, trap.Sprung())
	if err := c.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if got, err := r.ReadString('\n'); !errors.Is(err, os.ErrDeadlineExceeded) || got != "" {
		t.Fatalf("got %q, %v, want no answer before the deadline", got, err)
	}
	trap.Cut()
	_, err := talk(t, c, r, "x")
	wantBroken(t, err)
	if !s.received("put\n") {
		t.Error("the server did not get the request")
	}
}

func TestCutAnswerAfter(t *testing.T) {
	p := start(t, newServer(t).Addr().String())
	trap := p.CutAnswerAfter([]byte("ok: ab"))
	c, r := dial(t, p)
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(c, "abcd\n"); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if string(got) != "ok: ab" {
		t.Errorf("got %q before the cut, want %q", got, "ok: ab")
	}
	if err != nil {
		wantBroken(t, err)
	}
	wait(t, trap.Sprung())
}

func TestPatternInTwoWrites(t *testing.T) {
	s := newServer(t)
	p := start(t, s.Addr().String())
	trap := p.CutRequest([]byte("COMMIT"))
	c, r := dial(t, p)
	if _, err := io.WriteString(c, "y\nCOM"); err != nil {
		t.Fatal(err)
	}
	// The answer proves that the proxy has passed on the first write.
	if got, err := r.ReadString('\n'); err != nil || got != "ok: y\n" {
		t.Fatalf("%q, %v", got, err)
	}
	_, err := talk(t, c, r, "MIT")
	wantBroken(t, err)
	wait(t, trap.Sprung())
	if s.received("COMMIT") {
		t.Error("the server got the request")
	}
}

func TestRedirect(t *testing.T) {
	p := start(t, "127.0.0.1:1") // no server listens there
	c, err := net.Dial("tcp", p.Addr())
	if err == nil {
		defer c.Close()
		_, err = talk(t, c, bufio.NewReader(c), "a")
	}
	wantBroken(t, err)
	p.Redirect(newServer(t).Addr().String())
	wantAnswer(t, p)
}

func TestEndOfMatch(t *testing.T) {
	for _, c := range []struct {
		window, pattern string
		seen, want      int
	}{
		{"abc", "b", 0, 2},
		{"abc", "abc", 0, 3},
		{"abc", "bc", 2, 1},
		{"abc", "ab", 2, -1}, // the match ends in the part that was searched before
		{"abc", "d", 0, -1},
	} {
		if got := endOfMatch([]byte(c.window), c.seen, []byte(c.pattern)); got != c.want {
			t.Errorf("endOfMatch(%q, %d, %q) = %d, want %d", c.window, c.seen, c.pattern, got, c.want)
		}
	}
}
