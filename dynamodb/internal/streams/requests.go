package streams

import (
	"context"
	"errors"
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
	link   Link // nil while there is no connection
	serial uint64
	proofs map[uint64]chan bool // requested proofs
}

// connect makes a link the current one, and repeats the requests that are not answered.
func (r *requests) connect(link Link) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link = link
	for serial := range r.proofs {
		if err := link.Send(proveRequest(serial)); err != nil {
			return err
		}
	}
	return nil
}

func (r *requests) disconnect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.link = nil
}

// ask sends a request if there is a connection. A failed one is detected by the receiver.
func (r *requests) ask(in *wire.FollowRequest) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.link != nil {
		_ = r.link.Send(in)
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
