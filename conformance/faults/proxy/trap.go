package proxy

import (
	"bytes"
	"sync"
)

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

// verdict is what becomes of a piece of a stream.
type verdict struct {
	pass int    // so many bytes are passed on
	cut  bool   // then the link is broken
	trap *Trap  // by this trap
	then func() // called once the bytes are passed on
}

// CutRequest breaks the connection on which a client sends pattern, before the server has got all of it: the server
// cannot have carried out what was asked.
func (p *Proxy) CutRequest(pattern []byte) *Trap { return p.set(cutRequest, pattern) }

// CutAnswer delivers the request that holds pattern, and breaks its connection as soon as the server says anything,
// before the client hears a byte of it. Where a connection carries one request at a time, as with Postgres and HTTP/1,
// the request has been carried out by then. On a connection that is shared (HTTP/2: etcd) the first bytes may be about
// something else: use HoldAnswer there.
func (p *Proxy) CutAnswer(pattern []byte) *Trap { return p.set(cutAnswer, pattern) }

// HoldAnswer delivers the request that holds pattern, and from then on keeps from the client what the server says on
// that connection, until the caller breaks it with [Trap.Cut], or [Proxy.Cut]: after it has made sure, by a way of its
// own, that the request was carried out.
func (p *Proxy) HoldAnswer(pattern []byte) *Trap { return p.set(holdAnswer, pattern) }

// CutAnswerAfter breaks the connection on which a server sends pattern, right behind it: the client gets the answer up
// to there, and no further.
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

// take removes a trap from those in wait: whoever succeeds may spring it.
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

// request looks at bytes on their way to the server.
func (p *Proxy) request(l *link, window []byte, seen int) verdict {
	all := verdict{pass: len(window) - seen}
	for _, t := range p.waiting() {
		if t.kind == cutAnswerAfter {
			continue
		}
		end := after(window, seen, t.pattern)
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

// answer looks at bytes on their way to the client.
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
		if end := after(window, seen, t.pattern); end >= 0 && p.take(t) {
			return verdict{pass: end, cut: true, trap: t}
		}
	}
	return verdict{pass: len(window) - seen}
}
