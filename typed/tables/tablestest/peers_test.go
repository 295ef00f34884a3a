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

// peers is two stores in two processes on one database. The first process is killed from time to time.
type peers struct {
	ctx     context.Context
	direct  storage.Backend
	ordered bool
	all     []*remote

	mu    sync.Mutex
	began time.Time
	ops   []porcupine.Operation
}

// RunPeers checks the guarantees of stores in two processes, while one process is killed and restarted. A backend without an order of changes across
// objects is not ordered: its Views are not cuts and not linearizable.
func RunPeers(t *testing.T, o PeerOptions) {
	t.Helper()
	if !o.Ordered {
		t.Log("exempt from whole commits (S1) and linearizable Views (S3), which the backend does not support")
	}
	if err := runPeers(t, o); err != nil {
		t.Error(err)
	}
}

func runPeers(t *testing.T, o PeerOptions) (err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
	defer cancel()
	p := &peers{ctx: ctx, ordered: o.Ordered, began: time.Now()}
	if p.direct, err = storage.Open(ctx, o.URL); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.direct.Close()) }()
	for range 2 {
		r := &remote{options: o, alive: make(chan struct{})}
		defer func() { err = errors.Join(err, r.close()) }()
		p.all = append(p.all, r)
		if err := r.start(); err != nil {
			return err
		}
	}
	histories := historyCount
	if o.Slow {
		histories /= 3
	}
	for h := range histories {
		if err := p.history(fmt.Sprintf("h%d-", h), h%3 == 2); err != nil {
			return err
		}
	}
	return p.converge()
}

// history lets both processes run transactions on the same objects and increment all members. A checker searches for a serial order.
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
			plan := randomPlan(prefix, int64(1+c*historyLength+i))
			return p.transact(ctx, c, Work{plan.reads, plan.writes})
		}))
	}
	for i := range p.all {
		clients = append(clients, repeat(historyLength, func(ctx context.Context, _ int) error { return p.increment(ctx, i) }))
	}
	if kill {
		clients = append(clients, func(ctx context.Context) error {
			select {
			case <-begun: // the other clients are halfway
			case <-ctx.Done():
				return ctx.Err()
			}
			p.all[0].kill()
			return p.all[0].start()
		})
	}
	if err := runAll(p.ctx, clients...); err != nil {
		return err
	}
	switch porcupine.CheckOperationsTimeout(model, p.ops, 20*time.Second) {
	case porcupine.Illegal:
		return fmt.Errorf("not serializable: a history of two processes: %v", p.ops)
	case porcupine.Unknown:
		return errors.New("the checker timed out")
	}
	return nil
}

// transact runs a transaction and records it. If its process was killed, its reads and its outcome are unknown: it may take effect after all others.
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

// increment lets one process increment all members, and checks its next View and a linearizable View of the other process.
func (p *peers) increment(ctx context.Context, i int) error {
	all := names(members)
	var mine, theirs map[string]int64
	if err := p.all[i].call(ctx, "Increment", all, &mine); err != nil {
		return ignoreKilled(err)
	}
	if !p.ordered {
		return nil
	}
	if err := p.all[1-i].call(ctx, "ReadAll", true, &theirs); err != nil {
		return ignoreKilled(err)
	}
	if err := errors.Join(checkWhole(mine), checkWhole(theirs)); err != nil {
		return err
	}
	if theirs[all[0]] < mine[all[0]] {
		return fmt.Errorf("one process has read %d, a Linearizable View in the other process has %d", mine[all[0]], theirs[all[0]])
	}
	return nil
}

// ignoreKilled returns nil for a call whose process was killed.
func ignoreKilled(err error) error {
	if errors.Is(err, errKilled) {
		return nil
	}
	return err
}

// converge waits until both processes equal the database.
func (p *peers) converge() error {
	var read map[string]int64
	if err := p.all[0].call(p.ctx, "Transact", Work{Writes: map[string]int64{"the end": 1}}, &read); err != nil {
		return err
	}
	want, err := stored(&world{ctx: p.ctx, handles: []storage.Backend{p.direct}})
	if err != nil {
		return err
	}
	for i, r := range p.all {
		if err := r.call(p.ctx, "AwaitState", want, &struct{}{}); err != nil {
			return fmt.Errorf("the watch of process %d: %w", i, err)
		}
		var shown map[string]int64
		if err := r.call(p.ctx, "ReadAll", false, &shown); err != nil {
			return err
		}
		if len(shown) != len(want) {
			return fmt.Errorf("process %d has %d objects, %d are stored", i, len(shown), len(want))
		}
	}
	return nil
}
