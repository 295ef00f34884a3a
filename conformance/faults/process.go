package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/freeze"
)

// Processes opens handles of a store in processes of their own, which can be killed and frozen. They are children of the running
// program and the same program, which calls [ServeProcess] first thing in its main, or in TestMain. A process that was killed is
// started again; what is known of the old one, such as what its eventual reads have shown, does not hold for the new one, and
// its watches go on from their cursors.
//
// Each handle is a process. Where only one process at a time may have the database open, [Options].Handles is 1.
type Processes struct {
	url string
	mu  sync.Mutex
	all []*process
}

// NewProcesses returns processes for the store at storeURL. The program has to know the adapter.
func NewProcesses(storeURL string) *Processes { return &Processes{url: storeURL} }

// Open starts a process and opens a handle in it.
func (p *Processes) Open(ctx context.Context) (storage.Backend, error) {
	b := &process{url: p.url, alive: make(chan struct{})}
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, b)
	return b, nil
}

// Faults are KillClient and, where the system can do that, FreezeClient.
func (p *Processes) Faults() []Fault {
	faults := []Fault{{Kind: KillClient, Weight: 2, Touches: "processes", Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
		b, err := p.one(random)
		if err != nil {
			return nil, err
		}
		b.kill()
		return b.start, nil
	}}}
	if !freeze.Possible {
		return faults
	}
	return append(faults, Fault{Kind: FreezeClient, Weight: 2, Touches: "processes", Hold: 3 * time.Second, Inject: func(_ context.Context, random *rand.Rand) (func(context.Context) error, error) {
		b, err := p.one(random)
		if err != nil {
			return nil, err
		}
		return func(context.Context) error { return b.withProcess(freeze.Wake) }, b.withProcess(freeze.Stop)
	}})
}

func (p *Processes) one(random *rand.Rand) (*process, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) == 0 {
		return nil, errors.New("no process was opened")
	}
	return p.all[random.IntN(len(p.all))], nil
}

// generation is which process of those that a handle, or a watch of it, has had answered last: 0 where there is only one.
func generation(of any) int {
	if g, ok := of.(interface{ generation() int }); ok {
		return g.generation()
	}
	return 0
}
