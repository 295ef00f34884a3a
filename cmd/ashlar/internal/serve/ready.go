package serve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// readiness reports whether calls can be served: the store answers, and the server is not stopping.
type readiness struct {
	backend    storage.Backend
	timeout    time.Duration
	writeEvery time.Duration // the time after a successful write until a probe writes again; 0 for never
	draining   atomic.Bool

	mu      sync.Mutex
	probe   *probe    // the active probe, or nil
	writeAt time.Time // when a probe writes again; only the active probe uses it
}

// probe is one read of the store, and sometimes a write. Concurrent checks share it, so that they do not add load to a slow store.
type probe struct {
	resultCh chan struct{}
	read     atomic.Bool // the read has succeeded
	err      error       // set when resultCh is closed
}

var (
	errDraining = errors.New("the server is shutting down")
	errNoWrites = errors.New("the store takes no writes")
)

// check returns nil if calls can be served. It returns within the timeout, even if the store does not answer.
func (r *readiness) check(ctx context.Context) error {
	if r.draining.Load() {
		return errDraining
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	p := r.currentProbe()
	select {
	case <-p.resultCh:
		return p.err
	case <-ctx.Done():
		if p.read.Load() {
			return fmt.Errorf("%w: no answer within %v", errNoWrites, r.timeout)
		}
		return fmt.Errorf("the store does not answer within %v", r.timeout)
	}
}

// currentProbe returns the active probe, and starts one if there is none. A store that never answers gets one request at a time.
func (r *readiness) currentProbe() *probe {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.probe != nil {
		return r.probe
	}
	p := &probe{resultCh: make(chan struct{})}
	r.probe = p
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), r.timeout)
		defer cancel()
		_, err := r.backend.Read(ctx, storage.StrongConsistency, probeID)
		if !errors.Is(err, storage.ErrNotFound) {
			p.err = fmt.Errorf("the store does not answer: %w", err)
		} else if r.writeEvery > 0 && !time.Now().Before(r.writeAt) {
			p.read.Store(true)
			p.err = r.write(ctx)
		}
		r.mu.Lock()
		r.probe = nil
		r.mu.Unlock()
		close(p.resultCh)
	}()
	return p
}

// probeID is an id that cannot exist: the names of stored resources are in lower case.
var probeID = &resourcepb.ID{
	Name: "READY?", Type: &resourcepb.Type{Group: "internal", GroupVersion: "v1", Kind: "Probe"}, Tenancy: &resourcepb.Tenancy{},
}

// probeNote is the name of the note that probes write. Notes are no resources: lists, watches and history do not show them.
const probeNote = "write-probe"

// write writes a note, if the store has notes.
func (r *readiness) write(ctx context.Context) error {
	notes, ok := storage.As[driver.Mover](r.backend)
	if !ok {
		return nil
	}
	_, revision, err := notes.ReadNote(ctx, probeNote)
	if err == nil {
		_, err = notes.WriteNote(ctx, probeNote, nil, revision)
	}
	if err != nil && !errors.Is(err, storage.ErrCASFailure) { // otherwise another server has just written
		return fmt.Errorf("%w: %w", errNoWrites, err)
	}
	r.writeAt = time.Now().Add(r.writeEvery)
	return nil
}
