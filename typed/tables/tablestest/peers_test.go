package tablestest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/ashlar-dev/storage"
)

// peers are two stores in two processes on one database, of which the first one is killed now and then.
type peers struct {
	ctx     context.Context
	around  storage.Backend
	ordered bool
	all     []*remote

	mu    sync.Mutex
	began time.Time
	ops   []porcupine.Operation
}

// RunPeers holds stores in two processes to what a store promises, while one of the processes is killed and started again. A backend that
// has no order of changes over several objects is not ordered: of it, no View is a cut and none is linearizable.
func RunPeers(t *testing.T, url string, ordered bool) {
	t.Helper()
	if !ordered {
		t.Log("not held to whole commits (S1) and to linearizable Views (S3), which the backend has not")
	}
	if err := runPeers(t, PeerOptions{URL: url, Ordered: ordered}); err != nil {
		t.Error(err)
	}
}

func runPeers(t *testing.T, o PeerOptions) (err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	defer cancel()
	p := &peers{ctx: ctx, ordered: o.Ordered, began: time.Now()}
	if p.around, err = storage.Open(ctx, o.URL); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.around.Close()) }()
	for range 2 {
		r := &remote{options: o, alive: make(chan struct{})}
		defer func() { err = errors.Join(err, r.close()) }()
		p.all = append(p.all, r)
		if err := r.start(); err != nil {
			return err
		}
	}
	for h := range historyCount {
		if err := p.history(fmt.Sprintf("h%d-", h), h%3 == 2); err != nil {
			return err
		}
	}
	return p.meet()
}

// history has both processes make transactions on the same objects, and raise all members at once; and has a checker find an order in which
// the transactions could have happened one after the other.
func (p *peers) history(prefix string, kill bool) error {
	p.ops = nil
	var clients []func(context.Context) error
	var half sync.Once
	begun := make(chan struct{})
	for c := range historyClients {
		clients = append(clients, repeat(historyLength, func(ctx context.Context, i int) error {
			if i == historyLength/2 {
				half.Do(func() { close(begun) })
			}
			plan := planned(prefix, int64(1+c*historyLength+i))
			return p.transact(ctx, c, Work{plan.reads, plan.writes})
		}))
	}
	for i := range p.all {
		clients = append(clients, repeat(historyLength, func(ctx context.Context, _ int) error { return p.raise(ctx, i) }))
	}
	if kill {
		clients = append(clients, func(ctx context.Context) error {
			select {
			case <-begun: // the others are in the middle of their work
			case <-ctx.Done():
				return ctx.Err()
			}
			p.all[0].kill()
			return p.all[0].start()
		})
	}
	if err := together(p.ctx, clients...); err != nil {
		return err
	}
	switch porcupine.CheckOperationsTimeout(model, p.ops, 20*time.Second) {
	case porcupine.Illegal:
		return fmt.Errorf("a history of two processes is not serializable: %v", p.ops)
	case porcupine.Unknown:
		return errors.New("the checker found no answer in time")
	}
	return nil
}

// transact makes a transaction and notes it. Of one whose process was killed nobody knows what it has read, nor whether it has happened:
// it may yet happen, after all others.
func (p *peers) transact(ctx context.Context, client int, work Work) error {
	op := porcupine.Operation{ClientId: client, Call: int64(time.Since(p.began)), Return: math.MaxInt64}
	done := transaction{writes: work.Writes}
	err := p.all[client%2].call(ctx, "Transact", work, &done.reads)
	switch {
	case errors.Is(err, errKilled):
		done.reads = nil
	case err != nil:
		return err
	default:
		op.Return = int64(time.Since(p.began))
	}
	op.Input = done
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ops = append(p.ops, op)
	return nil
}

// raise has one process raise all members, and looks whether it shows that at once, and the other one by a linearizable View.
func (p *peers) raise(ctx context.Context, i int) error {
	all := names(members)
	var mine, theirs map[string]int64
	if err := p.all[i].call(ctx, "Raise", all, &mine); err != nil {
		return forgiven(err)
	}
	if !p.ordered {
		return nil
	}
	if err := p.all[1-i].call(ctx, "Look", true, &theirs); err != nil {
		return forgiven(err)
	}
	if err := errors.Join(whole(mine), whole(theirs)); err != nil {
		return err
	}
	if theirs[all[0]] < mine[all[0]] {
		return fmt.Errorf("one process was shown %d, a Linearizable View in the other one shows %d", mine[all[0]], theirs[all[0]])
	}
	return nil
}

// forgiven is nil for a call whose process was killed.
func forgiven(err error) error {
	if errors.Is(err, errKilled) {
		return nil
	}
	return err
}

// meet waits until both processes have come to what is stored.
func (p *peers) meet() error {
	var read map[string]int64
	if err := p.all[0].call(p.ctx, "Transact", Work{Writes: map[string]int64{"the end": 1}}, &read); err != nil {
		return err
	}
	want, err := stored(&world{ctx: p.ctx, handles: []storage.Backend{p.around}})
	if err != nil {
		return err
	}
	for i, r := range p.all {
		if err := r.call(p.ctx, "Reach", want, &struct{}{}); err != nil {
			return fmt.Errorf("the watch of process %d: %w", i, err)
		}
		var shown map[string]int64
		if err := r.call(p.ctx, "Look", false, &shown); err != nil {
			return err
		}
		if len(shown) != len(want) {
			return fmt.Errorf("process %d shows %d objects, %d are stored", i, len(shown), len(want))
		}
	}
	return nil
}
