package streams

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage/internal/wire"
)

// silentLink accepts requests and answers none.
type silentLink struct {
	mu   sync.Mutex
	sent []*wire.FollowRequest
}

func (l *silentLink) Send(in *wire.FollowRequest) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, in)
	return nil
}

func (l *silentLink) exacts() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, in := range l.sent {
		if in.GetExact() != nil {
			n++
		}
	}
	return n
}

func (*silentLink) Recv() (*wire.FollowResponse, error) { select {} }
func (*silentLink) Close()                              {}

// A request for an exact position is lost with the relay. It is repeated at the next one.
func TestExactPositionIsRequestedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testExactPositionIsRequestedAgain)
}

func testExactPositionIsRequestedAgain(t *testing.T) {
	r := newSubscription(&Config{}, nil)
	r.setPosition(at(shardPosition{"a", since(time.Unix(1e9, 0))}))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := r.exactPosition(ctx)
		done <- err
	}()
	for range 2 {
		l := &silentLink{}
		r.connect(l)
		time.Sleep(2 * time.Second) // of the bubble: the request is repeated after a second
		if l.exacts() == 0 {
			t.Fatal("a relay was not asked for an exact position")
		}
		r.disconnect()
	}
	r.setPosition(at(shardPosition{"a", "1"}))
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// fullLink is a link that accepts no further request before its answers are received.
type fullLink struct{ received, closed chan struct{} }

func (l *fullLink) Send(*wire.FollowRequest) error {
	select {
	case <-l.received:
	case <-l.closed:
	}
	return nil
}

func (*fullLink) Recv() (*wire.FollowResponse, error) { select {} }
func (*fullLink) Close()                              {}

// A relay that takes no further requests before its answers are received blocks neither the receiver nor a writer.
func TestRequestsBlockNobody(t *testing.T) {
	t.Parallel()
	r := newSubscription(&Config{}, nil)
	l := &fullLink{make(chan struct{}), make(chan struct{})}
	defer close(l.closed)
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.connect(l)
		for range 100 {
			go func() { _, _ = r.prove(t.Context(), nil) }()
		}
		for requested := 0; requested < 100; runtime.Gosched() {
			r.requests.mu.Lock()
			requested = len(r.proofs)
			r.requests.mu.Unlock()
		}
		r.complete(&wire.Proven{Serial: 1})
		r.ask(&wire.FollowRequest{Ask: &wire.FollowRequest_Wake{Wake: &wire.Wake{}}})
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("an answer waits for a request, which waits for the answer")
	}
}
