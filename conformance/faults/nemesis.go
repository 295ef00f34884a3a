package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// nemesis injects faults at random until ctx ends, heals all of them, and returns.
type nemesis struct {
	run    *run
	round  *round
	random *rand.Rand

	mu          sync.Mutex
	busyTargets map[string]bool
	err         error
}

func (n *nemesis) injectAll(ctx context.Context) error {
	n.busyTargets = make(map[string]bool)
	var injected sync.WaitGroup
	defer injected.Wait()
	slots := make(chan struct{}, n.run.o.AtOnce)
	for {
		pause(ctx, time.Duration(n.random.Int64N(int64(n.run.o.Calm))))
		select {
		case <-ctx.Done():
			injected.Wait()
			return n.err
		case slots <- struct{}{}:
		}
		fault, hold, source := n.chooseFault()
		if n.hasFailed() || ctx.Err() != nil || !n.claim(fault) {
			<-slots
			continue
		}
		injected.Go(func() {
			defer func() { <-slots }()
			n.inject(ctx, fault, hold, source)
		})
	}
}

func target(f Fault) string {
	if f.Touches != "" {
		return f.Touches
	}
	return string(f.Kind)
}

// chooseFault draws a fault. The result depends on the seed and the number of earlier calls only.
func (n *nemesis) chooseFault() (f Fault, hold time.Duration, source *rand.Rand) {
	sum := 0
	for _, f := range n.run.h.Faults {
		sum += max(1, f.Weight)
	}
	at := n.random.IntN(max(1, sum))
	for _, f = range n.run.h.Faults {
		if at -= max(1, f.Weight); at < 0 {
			break
		}
	}
	hold = time.Duration(n.random.Int64N(int64(cmp.Or(f.Hold, time.Second))))
	return f, hold, rand.New(rand.NewPCG(n.random.Uint64(), 0))
}

// claim reports whether a fault may be injected now, because no fault with the same target is active.
func (n *nemesis) claim(f Fault) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if f.Inject == nil || n.busyTargets[target(f)] {
		return false
	}
	n.busyTargets[target(f)] = true
	return true
}

// inject injects a fault, waits for its hold time or the end of the run, and heals it.
func (n *nemesis) inject(ctx context.Context, f Fault, hold time.Duration, random *rand.Rand) {
	began := n.run.now()
	ended := errors.New("its Inject or heal did not return") // such as by the FailNow of a test
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.busyTargets, target(f))
		if ended != nil && n.err == nil {
			n.err = fmt.Errorf("faults: the fault %q: %w", f.Kind, ended)
		}
		n.round.addFault(episode{f.Kind, began, n.run.now()})
	}()
	if f.Kind == Compact {
		defer n.run.beginCompaction()()
	}
	injecting, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.run.o.Timeout)
	defer cancel()
	heal, err := f.Inject(injecting, random)
	if err != nil {
		ended = fmt.Errorf("inject: %w", err)
		return
	}
	if heal != nil {
		pause(ctx, hold)
		healing, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.run.o.Timeout)
		defer cancel()
		if err := heal(healing); err != nil {
			ended = fmt.Errorf("heal: %w", err)
			return
		}
	}
	ended = nil
}

func (n *nemesis) hasFailed() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err != nil
}
