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

// peerVariable is in the environment of a process that serves a store, and does not test.
const peerVariable = "ASHLAR_STORETEST_PEER"

// ServePeer returns false at once, unless this process was started to serve a store: then it does so until nobody wants it any more.
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

// pipes are the two ends of a connection.
type pipes struct {
	io.ReadCloser
	io.Writer
}

// Peer is a store in a process of its own, with a watch that is followed from the beginning. Its methods are called by [remote].
type Peer struct {
	b storage.Backend
	s *tables.Store

	mu       sync.Mutex
	h        held
	moved    chan struct{} // closed when h changes
	wrong    error
	followed sync.WaitGroup
	stop     context.CancelFunc
}

// PeerOptions say what a peer opens.
type PeerOptions struct {
	URL      string
	Careless bool // what is read is not compared
	Ordered  bool // commits have ends
}

// Open opens the store.
func (p *Peer) Open(o PeerOptions, _ *struct{}) (err error) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	if p.b, err = storage.Open(ctx, o.URL); err != nil {
		return err
	}
	under := p.b
	if o.Careless {
		under = careless{p.b}
	}
	if p.s, err = tables.Open(ctx, under, numbers); err != nil {
		return err
	}
	p.h, p.moved = held{}, make(chan struct{})
	watch, err := p.s.ViewAndWatch(ctx, p.h.view)
	if err != nil {
		return err
	}
	p.followed.Go(func() {
		defer watch.Close()
		for {
			ev, err := watch.Next(ctx)
			if ctx.Err() != nil {
				return
			}
			p.take(ev, err, o.Ordered)
			if err != nil {
				return
			}
		}
	})
	return nil
}

// take takes in an event, and looks whether it continues what was held and a commit is whole.
func (p *Peer) take(ev tables.Event, err error, ordered bool) {
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
		err = whole(shown)
	}
	if p.wrong == nil {
		p.wrong = err
	}
	close(p.moved)
	p.moved = make(chan struct{})
}

// whole fails if what is shown is the state in the middle of a commit: all members have one value, or there are none of them.
func whole(shown map[string]int64) error {
	all := names(members)
	for _, name := range all {
		if shown[name] != shown[all[0]] {
			return fmt.Errorf("a part of a commit is shown: %v", shown)
		}
	}
	return nil
}

// Work is a transaction: what it reads, and what it writes.
type Work struct {
	Reads  []string
	Writes map[string]int64
}

// Transact carries out a transaction, and returns what it has read.
func (p *Peer) Transact(work Work, read *map[string]int64) error {
	var done transaction
	err := p.s.Update(context.Background(), func(tx *tables.Tx) error {
		return (&plan{work.Reads, work.Writes}).carryOut(tx, &done)
	})
	*read = done.reads
	return err
}

// Raise adds one to each of some objects, in one transaction, and shows what a View has right after it.
func (p *Peer) Raise(some []string, shown *map[string]int64) error {
	if err := set(context.Background(), p.s, plus(1), some...); err != nil {
		return err
	}
	return p.Look(false, shown)
}

// Look returns what a View shows.
func (p *Peer) Look(linearizable bool, shown *map[string]int64) error {
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

// Reach waits until the watch has come to what is stored, and fails if it has shown something wrong on the way.
func (p *Peer) Reach(want map[string]string, _ *struct{}) error {
	for {
		p.mu.Lock()
		moved, wrong, there := p.moved, p.wrong, p.h.is(want)
		p.mu.Unlock()
		if wrong != nil || there {
			return wrong
		}
		<-moved
	}
}

func (p *Peer) close() error {
	if p.s == nil {
		return nil
	}
	p.stop()
	p.followed.Wait()
	return errors.Join(p.s.Close(), p.b.Close())
}

// careless is a backend that does not compare what a transaction has read and does not write.
type careless struct{ storage.Backend }

// As implements what [storage.As] asks a layer.
func (c careless) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if ok {
		*transactor = c
	}
	return ok
}

// Commit implements storage.Transactor.
func (c careless) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	tx, _ := storage.As[storage.Transactor](c.Backend)
	return tx.Commit(ctx, slices.DeleteFunc(ops, func(op storage.Op) bool { return op.Check != nil }))
}

// MaxOps implements storage.Transactor.
func (c careless) MaxOps() int {
	tx, _ := storage.As[storage.Transactor](c.Backend)
	return tx.MaxOps()
}

// remote is a [Peer] as the process that has started it sees it.
type remote struct {
	options PeerOptions

	cmd *exec.Cmd // the process that was started last

	mu     sync.Mutex
	client *rpc.Client
	alive  chan struct{} // closed once the store is open
}

// start starts the process and has it open the store. A process that is itself a peer must never start others.
func (r *remote) start() error {
	if os.Getenv(peerVariable) != "" {
		return errors.New("a peer starts no peers")
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-test.run=^$") // if it did not know what it is for, it would do nothing
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

// errKilled is what a call returns whose process was killed before it had answered.
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

// kill ends the process as kill -9 does. Calls wait until it is started again.
func (r *remote) kill() {
	r.mu.Lock()
	r.alive = make(chan struct{})
	r.mu.Unlock()
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait() // it says that the process was killed
}

// close has the process end by itself, and returns what it did not end well with, such as the findings of the race detector.
func (r *remote) close() error {
	if r.client == nil {
		return nil
	}
	_ = r.client.Close() // after which it reads the end of its input
	kill := time.AfterFunc(time.Minute, func() { _ = r.cmd.Process.Kill() })
	defer kill.Stop()
	return r.cmd.Wait()
}
