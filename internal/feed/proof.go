package feed

import (
	"context"
	"sync"
	"time"

	"github.com/ashlar-dev/storage/driver"
)

// proof is a pending or finished result of Prover.Newest.
type proof[P any] struct {
	readyCh chan struct{} // closed when at is set
	at      P
}

// expectedProof is a proof with the number of the newest request that it answers.
type expectedProof[P any] struct {
	*proof[P]
	request int64
}

// proofRounds makes the round trips of a run for proofs, one at a time.
type proofRounds[P any] struct {
	prover   driver.Prover[P]
	lifetime context.Context                  // the run's
	enter    func() (leave func(), open bool) // Feed.enter

	mu      sync.Mutex
	next    *proof[P] // the proof of the next round trip; nil if none is requested
	running bool      // a goroutine makes round trips
}

// prove returns a proof whose round trip has not begun yet.
func (r *proofRounds[P]) prove() *proof[P] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &proof[P]{readyCh: make(chan struct{})}
	}
	p := r.next
	if r.running {
		return p
	}
	if leave, ok := r.enter(); ok {
		r.running = true
		go func() {
			defer leave()
			for r.requestProof() {
				continue
			}
		}()
	}
	return p
}

// requestProof makes the next round trip and retries until it succeeds or the run ends. It returns false if none is requested.
func (r *proofRounds[P]) requestProof() bool {
	r.mu.Lock()
	p := r.next
	r.next = nil
	if p == nil || r.lifetime.Err() != nil {
		r.running = false
		r.mu.Unlock()
		return false
	}
	r.mu.Unlock()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		at, err := r.prover.Newest(r.lifetime)
		if err == nil {
			p.at = at
			close(p.readyCh)
			return true
		}
		select {
		case <-time.After(pause):
		case <-r.lifetime.Done():
			return true
		}
	}
}
