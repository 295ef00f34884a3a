package proxy

import (
	"bytes"
	"fmt"
	"net"
	"sync"
)

// Proxy forwards connections from clients to one server. All methods are safe for concurrent use.
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

// Connections returns the number of open connections.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.links)
}

// Redirect makes another server the target of new connections, as a fail-over does. Open connections stay.
func (p *Proxy) Redirect(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Cut breaks every open connection. New ones are accepted.
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

// Stall stops all bytes, in both directions and on new connections too, until Resume. Neither end gets an error.
func (p *Proxy) Stall() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
		p.gate = make(chan struct{})
	default: // stalled already
	}
}

// Resume ends Refuse and Stall. Delayed bytes are forwarded.
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

// pump forwards bytes from one end to the other. inspect gets every read, preceded by the last bytes of the reads before it (seen
// is their number). It returns how many bytes to forward and the action after that.
func (p *Proxy) pump(l *link, from, to net.Conn, rate *throttle, inspect func(l *link, window []byte, seen int) verdict) {
	defer l.cut()
	buf := make([]byte, 64<<10)
	var window []byte
	for {
		n, err := from.Read(buf[:rate.chunk(len(buf))])
		if n > 0 {
			if !p.pass(l) || !rate.wait(n, l.broken) {
				return
			}
			seen := len(window)
			window = append(window, buf[:n]...)
			v := inspect(l, window, seen)
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
					l.end(to) // a reset could overtake the forwarded bytes
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

// pass waits while the proxy is stalled, and reports whether the link is still open.
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

// endOfMatch returns the end of pattern in the part of window after the first seen bytes, relative to that part. It returns -1 if
// pattern does not end there.
func endOfMatch(window []byte, seen int, pattern []byte) int {
	from := max(0, seen-len(pattern)+1)
	i := bytes.Index(window[from:], pattern)
	if i < 0 {
		return -1
	}
	return from + i + len(pattern) - seen
}

// SetRate limits each direction to a number of bytes per second, shared by all connections; 0 removes the limit. It takes
// effect with the next read, so it may be called during transfers.
func (p *Proxy) SetRate(bytesPerSecond int) {
	p.up.set(bytesPerSecond)
	p.down.set(bytesPerSecond)
}

// CutRequest breaks the connection of a client that sends pattern before the server has the whole request, so the server cannot
// have carried it out.
func (p *Proxy) CutRequest(pattern []byte) *Trap { return p.set(cutRequest, pattern) }

// CutAnswer forwards the request that contains pattern, and breaks its connection at the first bytes from the server, before
// the client gets any of them. If a connection carries one request at a time, as with Postgres and HTTP/1, the request has been
// carried out by then. On a shared connection (HTTP/2: etcd) the first bytes may belong to another request: use HoldAnswer
// there.
func (p *Proxy) CutAnswer(pattern []byte) *Trap { return p.set(cutAnswer, pattern) }

// HoldAnswer forwards the request that contains pattern, and from then on withholds all bytes from the server on that
// connection. The caller verifies by other means that the request was carried out, and then breaks the connection with
// [Trap.Cut] or [Proxy.Cut].
func (p *Proxy) HoldAnswer(pattern []byte) *Trap { return p.set(holdAnswer, pattern) }

// CutAnswerAfter breaks the connection on which a server sends pattern, directly after the pattern: the client gets the answer up to
// its end, and no further byte.
func (p *Proxy) CutAnswerAfter(pattern []byte) *Trap { return p.set(cutAnswerAfter, pattern) }

func (p *Proxy) set(k kind, pattern []byte) *Trap {
	if len(pattern) == 0 || len(pattern) > MaxPattern {
		panic("proxy: a pattern has 1 to 4096 bytes")
	}
	t := &Trap{proxy: p, kind: k, pattern: bytes.Clone(pattern), sprung: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traps = append(p.traps, t)
	return t
}

// take removes a trap from the waiting ones. The caller that removes it may spring it.
func (p *Proxy) take(t *Trap) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.traps {
		if other == t {
			p.traps = append(p.traps[:i:i], p.traps[i+1:]...)
			return true
		}
	}
	return false
}

func (p *Proxy) waiting() []*Trap {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.traps[:len(p.traps):len(p.traps)]
}

// request checks bytes on their way to the server.
func (p *Proxy) request(l *link, window []byte, seen int) verdict {
	all := verdict{pass: len(window) - seen}
	for _, t := range p.waiting() {
		if t.kind == cutAnswerAfter {
			continue
		}
		end := endOfMatch(window, seen, t.pattern)
		if end < 0 || !p.take(t) {
			continue
		}
		if t.kind == cutRequest {
			return verdict{pass: end - 1, cut: true, trap: t}
		}
		t.mu.Lock()
		t.link = l
		t.mu.Unlock()
		l.mu.Lock()
		l.withhold = t // before the request is on its way, so that no answer slips through
		l.mu.Unlock()
		if t.kind == holdAnswer {
			all.then = t.fire
		}
		return all
	}
	return all
}

// answer checks bytes on their way to the client.
func (p *Proxy) answer(l *link, window []byte, seen int) verdict {
	l.mu.Lock()
	withhold := l.withhold
	l.mu.Unlock()
	if withhold != nil {
		return verdict{cut: withhold.kind == cutAnswer, trap: withhold}
	}
	for _, t := range p.waiting() {
		if t.kind != cutAnswerAfter {
			continue
		}
		if end := endOfMatch(window, seen, t.pattern); end >= 0 && p.take(t) {
			return verdict{pass: end, cut: true, trap: t}
		}
	}
	return verdict{pass: len(window) - seen}
}

// MaxPattern bounds the length of a pattern.
const MaxPattern = 4096

// Trap is one fault lying in wait. It springs once.
type Trap struct {
	proxy   *Proxy
	kind    kind
	pattern []byte
	once    sync.Once
	sprung  chan struct{}

	mu   sync.Mutex
	link *link // the connection it caught
}

type kind int

const (
	cutRequest kind = iota
	cutAnswer
	holdAnswer
	cutAnswerAfter
)

// verdict is the treatment of a read from a stream.
type verdict struct {
	pass int    // number of bytes to forward
	cut  bool   // break the link after that
	trap *Trap  // the trap that breaks it
	then func() // called after the bytes are forwarded
}

// Sprung is closed once the trap has done its work: the connection is broken, or, for HoldAnswer, the request is
// delivered.
func (t *Trap) Sprung() <-chan struct{} { return t.sprung }

// Disarm takes a trap away that has not sprung, and reports whether it had not.
func (t *Trap) Disarm() bool { return t.proxy.take(t) }

// Cut breaks the connection that HoldAnswer caught.
func (t *Trap) Cut() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.link != nil {
		t.link.cut()
	}
}

func (t *Trap) fire() { t.once.Do(func() { close(t.sprung) }) }
