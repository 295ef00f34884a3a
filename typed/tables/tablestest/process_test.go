package tablestest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed/tables"
)

// peerVariable is set in the environment of a process that serves a store.
const peerVariable = "ASHLAR_STORETEST_PEER"

// ServePeer returns false immediately unless this process was started to serve a store. In that case it serves the store until its input ends.
func ServePeer() bool {
	if os.Getenv(peerVariable) == "" {
		return false
	}
	p := &Peer{}
	server := rpc.NewServer()
	if err := server.Register(p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	server.ServeConn(pipes{os.Stdin, os.Stdout})
	if err := p.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}

// pipes is the two ends of a connection.
type pipes struct {
	io.ReadCloser
	io.Writer
}

// Peer is a store in its own process, with a watch from the beginning. [remote] calls its methods.
type Peer struct {
	b storage.Backend
	s *tables.Store

	mu       sync.Mutex
	h        state
	changeCh chan struct{} // closed when h changes
	err      error
	follower sync.WaitGroup
	stop     context.CancelFunc
}

// PeerOptions configures a peer.
type PeerOptions struct {
	URL        string
	SkipChecks bool // do not compare reads
	Ordered    bool // commits have a marked end
	Slow       bool // a commit takes milliseconds: run a third of the histories
}

// Open opens the store.
func (p *Peer) Open(o PeerOptions, _ *struct{}) (err error) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	if p.b, err = storage.Open(ctx, o.URL); err != nil {
		return err
	}
	under := p.b
	if o.SkipChecks {
		under = unchecked{p.b}
	}
	if p.s, err = tables.Open(ctx, under, numbers); err != nil {
		return err
	}
	p.h, p.changeCh = state{}, make(chan struct{})
	watch, err := p.s.ViewAndWatch(ctx, p.h.view)
	if err != nil {
		return err
	}
	p.follower.Go(func() {
		defer watch.Close()
		for {
			ev, err := watch.Next(ctx)
			if ctx.Err() != nil {
				return
			}
			p.applyEvent(ev, err, o.Ordered)
			if err != nil {
				return
			}
		}
	})
	return nil
}

// applyEvent applies an event and checks that it follows the state and that commits are complete.
func (p *Peer) applyEvent(ev tables.Event, err error, ordered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		err = p.h.apply(ev)
	}
	if err == nil && ordered && !ev.More {
		shown := map[string]int64{}
		for name, o := range p.h {
			shown[name] = o.Data.GetValue()
		}
		err = checkWhole(shown)
	}
	if p.err == nil {
		p.err = err
	}
	close(p.changeCh)
	p.changeCh = make(chan struct{})
}

// checkWhole fails if a state lies within a commit: all members must have one value, or none may exist.
func checkWhole(shown map[string]int64) error {
	all := names(members)
	for _, name := range all {
		if shown[name] != shown[all[0]] {
			return fmt.Errorf("the state has part of a commit: %v", shown)
		}
	}
	return nil
}

// Work is the reads and writes of a transaction.
type Work struct {
	Reads  []string
	Writes map[string]int64
}

// Transact runs a transaction and returns the values that it has read.
func (p *Peer) Transact(work Work, read *map[string]int64) error {
	var done transaction
	err := p.s.Update(context.Background(), func(tx *tables.Tx) error {
		return (&plan{work.Reads, work.Writes}).execute(tx, &done)
	})
	*read = done.reads
	return err
}

// Increment increments some objects in one transaction, and returns the values of a View after it.
func (p *Peer) Increment(some []string, shown *map[string]int64) error {
	if err := set(context.Background(), p.s, plus(1), some...); err != nil {
		return err
	}
	return p.ReadAll(false, shown)
}

// ReadAll returns the values of a View.
func (p *Peer) ReadAll(linearizable bool, shown *map[string]int64) error {
	var opts []tables.ViewOption
	if linearizable {
		opts = append(opts, tables.Linearizable)
	}
	return p.s.View(context.Background(), func(v *tables.View) error {
		all, err := numbers.List(v)
		*shown = map[string]int64{}
		for _, o := range all {
			(*shown)[o.ID.GetName()] = o.Data.GetValue()
		}
		return errors.Join(err, compareQueries(v))
	}, opts...)
}

// AwaitState waits until the watch has reached the stored state. It fails if the watch has violated a rule.
func (p *Peer) AwaitState(want map[string]string, _ *struct{}) error {
	for {
		p.mu.Lock()
		changeCh, err, reached := p.changeCh, p.err, p.h.equals(want)
		p.mu.Unlock()
		if err != nil || reached {
			return err
		}
		<-changeCh
	}
}

func (p *Peer) close() error {
	if p.s == nil {
		return nil
	}
	p.stop()
	p.follower.Wait()
	return errors.Join(p.s.Close(), p.b.Close())
}

// unchecked is a backend that does not compare the reads of a transaction.
type unchecked struct{ storage.Backend }

// As implements the lookup of [storage.As].
func (c unchecked) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if ok {
		*transactor = c
	}
	return ok
}

// Commit implements storage.Transactor.
func (c unchecked) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	tx, _ := storage.As[storage.Transactor](c.Backend)
	return tx.Commit(ctx, slices.DeleteFunc(ops, func(op storage.Op) bool { return op.Check != nil }))
}

// MaxOps implements storage.Transactor.
func (c unchecked) MaxOps() int {
	tx, _ := storage.As[storage.Transactor](c.Backend)
	return tx.MaxOps()
}

// remote is the parent's handle of a [Peer].
type remote struct {
	options PeerOptions

	cmd *exec.Cmd // the latest process

	mu     sync.Mutex
	client *rpc.Client
	alive  chan struct{} // closed once the store is open
}

// start starts the process and opens its store. A process that is itself a peer must never start others.
func (r *remote) start() error {
	if os.Getenv(peerVariable) != "" {
		return errors.New("a peer must not start a peer")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-test.run=^$") // does nothing in a program without ServePeer
	cmd.Env, cmd.Stderr = append(os.Environ(), peerVariable+"=1"), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	r.cmd = cmd
	client := rpc.NewClient(struct {
		io.Reader
		io.WriteCloser
	}{out, in})
	if err := client.Call("Peer.Open", r.options, &struct{}{}); err != nil {
		return errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.client = client
	close(r.alive)
	return nil
}

// errKilled is the error of a call whose process was killed before its answer.
var errKilled = errors.New("the process was killed")

func (r *remote) call(ctx context.Context, method string, args, reply any) error {
	r.mu.Lock()
	alive := r.alive
	r.mu.Unlock()
	select {
	case <-alive:
	case <-ctx.Done():
		return ctx.Err()
	}
	r.mu.Lock()
	client := r.client
	r.mu.Unlock()
	select {
	case call := <-client.Go("Peer."+method, args, reply, make(chan *rpc.Call, 1)).Done:
		r.mu.Lock()
		defer r.mu.Unlock()
		if _, answered := call.Error.(rpc.ServerError); call.Error != nil && !answered && r.alive != alive {
			return errKilled
		}
		return call.Error
	case <-ctx.Done():
		return ctx.Err()
	}
}

// kill ends the process like kill -9. Calls block until it is restarted.
func (r *remote) kill() {
	r.mu.Lock()
	r.alive = make(chan struct{})
	r.mu.Unlock()
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait() // returns an error, because the process was killed
}

// close lets the process exit and returns its exit error, such as findings of the race detector.
func (r *remote) close() error {
	if r.client == nil {
		return nil
	}
	_ = r.client.Close() // ends the input of the process
	kill := time.AfterFunc(time.Minute, func() { _ = r.cmd.Process.Kill() })
	defer kill.Stop()
	return r.cmd.Wait()
}
