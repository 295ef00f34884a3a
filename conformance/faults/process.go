package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/freeze"
)

// Processes opens handles of a store in processes of their own, which can be killed and frozen. They are child processes that
// run the same program, which must call [ServeProcess] at the start of main or TestMain. A killed process is started again.
// Eventual reads of the new process may be older than reads of the old one; its watches continue from their cursors, so a
// watch whose snapshot was a list that is no snapshot may repeat changes of the list.
//
// Each handle is a process. If only one process at a time may open the database, set [Options].Handles to 1.
type Processes struct {
	url         string
	programs    []string
	nextProgram atomic.Int64
	mu          sync.Mutex
	all         []*process
}

// NewProcesses returns processes for the store at storeURL. The program must import the adapter.
//
// Processes run the given executable files instead of this program, each process the next of them in turn, also one that replaces a killed
// process. So programs of several releases can use one store.
func NewProcesses(storeURL string, programs ...string) *Processes {
	return &Processes{url: storeURL, programs: programs}
}

// program returns the executable file of the next process.
func (p *Processes) program() (string, error) {
	if len(p.programs) == 0 {
		return os.Executable()
	}
	return p.programs[int(p.nextProgram.Add(1)-1)%len(p.programs)], nil
}

// Open starts a process and opens a handle in it.
func (p *Processes) Open(ctx context.Context) (storage.Backend, error) {
	b := &process{url: p.url, program: p.program, alive: make(chan struct{})}
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all = append(p.all, b)
	return b, nil
}

// Faults returns KillClient and, if the system supports it, FreezeClient.
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

// programOf returns the name of the executable file that a process of a handle ran, with a comma before it. It returns "" for a handle in
// this process.
func programOf(handle any, generation int) string {
	if p, ok := handle.(*process); ok {
		return p.programOf(generation)
	}
	return ""
}

// generation returns the number of the process that has last answered a handle or a watch. It is 0 for a handle in this process.
func generation(of any) int {
	if g, ok := of.(interface{ generation() int }); ok {
		return g.generation()
	}
	return 0
}
