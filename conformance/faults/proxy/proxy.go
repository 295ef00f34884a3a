package proxy

import (
	"bytes"
	"fmt"
	"net"
	"sync"
)

// Proxy stands between clients and one server. All methods may be called at any time, from any goroutine.
type Proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	closed bool
	refuse bool
	gate   chan struct{} // closed while bytes may pass
	links  map[*link]struct{}
	traps  []*Trap

	up, down throttle
}

// New starts a proxy in front of target, a host:port, on a loopback port of its own.
func New(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	p := &Proxy{listener: l, target: target, gate: make(chan struct{}), links: map[*link]struct{}{}}
	close(p.gate)
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is where clients connect to, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Connections counts the connections that stand now.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Redirect makes another server the target of new connections: what a fail-over does. Standing ones stay.
func (p *Proxy) Redirect(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Cut breaks every connection that stands now. New ones are welcome.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// Refuse breaks every connection and turns new ones away, until Resume.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	p.refuse = true
	p.mu.Unlock()
	p.Cut()
}

// Stall stops all bytes, in both directions and on new connections too, until Resume. Nobody gets an error.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
		p.gate = make(chan struct{})
	default: // stalled already
	}
}

// Resume ends Refuse and Stall. What was held up is passed on.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = false
	p.open()
}

func (p *Proxy) open() {
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

// Close breaks all connections and ends the proxy.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.open()
	_ = p.listener.Close()
	for l := range p.links {
		l.cut()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		turnAway, target := p.refuse || p.closed, p.target
		p.mu.Unlock()
		if turnAway {
			reset(client)
			continue
		}
		p.wg.Go(func() { p.serve(client, target) })
	}
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	once           sync.Once
	broken         chan struct{}

	mu       sync.Mutex
	withhold *Trap // set while answers are not passed on
}

func (l *link) cut() { l.end(nil) }

// end breaks the link, gently by a plain close at one of its ends.
func (l *link) end(gently net.Conn) {
	l.once.Do(func() {
		close(l.broken)
		for _, c := range []net.Conn{l.client, l.server} {
			if c == gently {
				_ = c.Close()
			} else {
				reset(c)
			}
		}
	})
}

// reset closes a connection so that the other end notices at once, even while it only waits.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

func (p *Proxy) serve(client net.Conn, target string) {
	server, err := net.Dial("tcp", target)
	if err != nil {
		reset(client)
		return
	}
	l := &link{client: client, server: server, broken: make(chan struct{})}
	p.mu.Lock()
	if p.closed || p.refuse {
		p.mu.Unlock()
		l.cut()
		return
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()

	var both sync.WaitGroup
	both.Go(func() { p.pump(l, client, server, &p.up, p.request) })
	both.Go(func() { p.pump(l, server, client, &p.down, p.answer) })
	both.Wait()

	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// pump passes bytes on from one end to the other. look sees every piece, with the end of what went before in front of
// it (seen tells how much), and says how many of its bytes to pass on and what to do afterwards.
func (p *Proxy) pump(l *link, from, to net.Conn, rate *throttle, look func(l *link, window []byte, seen int) verdict) {
	defer l.cut()
	buf := make([]byte, 64<<10)
	var window []byte
	for {
		n, err := from.Read(buf[:rate.piece(len(buf))])
		if n > 0 {
			if !p.pass(l) || !rate.wait(n, l.broken) {
				return
			}
			seen := len(window)
			window = append(window, buf[:n]...)
			v := look(l, window, seen)
			if v.pass > 0 {
				if _, err := to.Write(window[seen : seen+v.pass]); err != nil {
					return
				}
			}
			if v.then != nil {
				v.then()
			}
			if v.cut {
				if v.pass > 0 {
					l.end(to) // a reset could overtake what was just passed on
				}
				l.cut()
				v.trap.fire()
				return
			}
			if keep := MaxPattern - 1; len(window) > keep {
				window = append(window[:0], window[len(window)-keep:]...)
			}
		}
		if err != nil {
			return
		}
	}
}

// pass waits while the proxy is stalled, and reports whether the link still stands.
func (p *Proxy) pass(l *link) bool {
	p.mu.Lock()
	gate := p.gate
	p.mu.Unlock()
	select {
	case <-gate:
	case <-l.broken:
		return false
	}
	select {
	case <-l.broken:
		return false
	default:
		return true
	}
}

// after is where, in the new part of window, pattern ends; -1 when it is not there.
func after(window []byte, seen int, pattern []byte) int {
	from := max(0, seen-len(pattern)+1)
	i := bytes.Index(window[from:], pattern)
	if i < 0 {
		return -1
	}
	return from + i + len(pattern) - seen
}
