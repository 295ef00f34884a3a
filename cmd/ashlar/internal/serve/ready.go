package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// readiness knows whether calls can be served: the store answers, and the server is not about to stop.
type readiness struct {
	backend  storage.Backend
	timeout  time.Duration
	draining atomic.Bool

	mu    sync.Mutex
	probe *probe // the one under way, nil if there is none
}

// probe is one look at the store. All who ask meanwhile wait for it, so that a store in need is not asked by everybody.
type probe struct {
	done chan struct{}
	err  error // set when done is closed
}

var errDraining = errors.New("the server is about to stop")

// check returns nil if calls can be served. It takes no longer than the timeout, whatever the store does.
func (r *readiness) check(ctx context.Context) error {
	if r.draining.Load() {
		return errDraining
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	p := r.currentProbe()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return fmt.Errorf("the store does not answer within %v", r.timeout)
	}
}

// currentProbe returns the probe under way, and begins one if there is none. A store that never answers is asked once.
func (r *readiness) currentProbe() *probe {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.probe != nil {
		return r.probe
	}
	p := &probe{done: make(chan struct{})}
	r.probe = p
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
		defer cancel()
		_, err := r.backend.Read(ctx, storage.StrongConsistency, probeID)
		if !errors.Is(err, storage.ErrNotFound) {
			p.err = fmt.Errorf("the store does not answer: %w", err)
		}
		r.mu.Lock()
		r.probe = nil
		r.mu.Unlock()
		close(p.done)
	}()
	return p
}

// probeID is an id under which nothing can be stored through the service, whose names are in lower case.
var probeID = &resourcepb.ID{
	Name: "READY?", Type: &resourcepb.Type{Group: "internal", GroupVersion: "v1", Kind: "Probe"}, Tenancy: &resourcepb.Tenancy{},
}
