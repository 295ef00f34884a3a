package streams

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
	"github.com/ashlar-dev/storage/internal/wire"
)

// Link is a call of Follow. One goroutine at a time calls Send, and one calls Recv. Close ends both calls.
type Link interface {
	Send(in *wire.FollowRequest) error
	Recv() (*wire.FollowResponse, error)
	Close()
}

// requests are a subscription's requests to its relay. A proof that is not answered is requested again from the next relay.
type requests struct {
	endCh chan struct{} // closed when the subscription has ended

	mu     sync.Mutex
	queue  *requestQueue // of the connection; nil while there is none
	serial uint64
	proofs map[uint64]chan bool // requested proofs
}

// requestQueue contains the requests that were not sent yet. A relay may take no further request before its answers are received, so neither
// the receiver nor a writer waits for one to be sent.
type requestQueue struct {
	waiting []*wire.FollowRequest // guarded by requests.mu
	wake    chan struct{}
}

// connect makes a link the current one until disconnect, and repeats the requests that are not answered.
func (r *requests) connect(link Link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue != nil {
		close(r.queue.wake) // the relay has welcomed twice
	}
	r.queue = &requestQueue{wake: make(chan struct{}, 1)}
	for serial := range r.proofs {
		r.add(proveRequest(serial))
	}
	go r.send(link, r.queue)
}

func (r *requests) disconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue != nil {
		close(r.queue.wake)
		r.queue = nil
	}
}

// send sends the requests of a connection until it ends.
func (r *requests) send(link Link, q *requestQueue) {
	for range q.wake {
		r.mu.Lock()
		waiting := q.waiting
		q.waiting = nil
		r.mu.Unlock()
		for _, in := range waiting {
			if link.Send(in) != nil {
				return // the receiver detects it, too
			}
		}
	}
}

// ask sends a request if there is a connection.
func (r *requests) ask(in *wire.FollowRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queue != nil {
		r.add(in)
	}
}

// add adds a request to the queue. One for everything but a proof is not repeated before it was sent. The caller holds mu.
func (r *requests) add(in *wire.FollowRequest) {
	if in.GetProve() != nil || !slices.ContainsFunc(r.queue.waiting, func(other *wire.FollowRequest) bool {
		return (other.GetWake() != nil) == (in.GetWake() != nil) && (other.GetExact() != nil) == (in.GetExact() != nil)
	}) {
		r.queue.waiting = append(r.queue.waiting, in)
	}
	select {
	case r.queue.wake <- struct{}{}:
	default:
	}
}

func proveRequest(serial uint64) *wire.FollowRequest {
	return &wire.FollowRequest{Ask: &wire.FollowRequest_Prove{Prove: &wire.Prove{Serial: serial}}}
}

// complete answers a requested proof.
func (r *requests) complete(p *wire.Proven) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.proofs[p.GetSerial()]; ok {
		c <- p.GetComplete()
		delete(r.proofs, p.GetSerial())
	}
}

// prove requests a proof that begins after the call, from this relay or another one, and waits for it until a time. The relay has sent
// before its response what the proof is about.
func (r *requests) prove(ctx context.Context, until <-chan time.Time) (proven bool, err error) {
	c := make(chan bool, 1)
	r.mu.Lock()
	r.serial++
	serial := r.serial
	r.proofs[serial] = c
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.proofs, serial)
	}()
	r.ask(proveRequest(serial))
	select {
	case proven := <-c:
		return proven, nil
	case <-until:
		return false, nil
	case <-r.endCh:
		return false, driver.ErrRunEnded
	case <-ctx.Done():
		return false, request.Inconsistent(ctx, errors.New("no relay proved its progress before the deadline"))
	}
}
