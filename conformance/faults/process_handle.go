package faults

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// errDied is the error of calls whose process was killed.
var errDied = errors.New("faults: the process was killed")

// process is a handle in another process.
type process struct {
	url     string
	program func() (string, error) // the file to execute

	mu           sync.Mutex
	conn         *conn         // nil while there is no process
	alive        chan struct{} // closed once there is one
	programs     []string      // the executable file of each process, in the order of their starts
	closed       bool
	capabilities response // the answer of open
}

// start starts a process that opens the store. It retries until ctx ends, because other faults may be active.
func (p *process) start(ctx context.Context) error {
	for {
		program, err := p.program()
		if err != nil {
			return fmt.Errorf("faults: finding the program to start: %w", err)
		}
		c, err := newConn(program)
		if err != nil {
			return err
		}
		r, err := c.call(ctx, request{Method: "open", Text: p.url})
		if err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.programs = append(p.programs, program)
			c.generation = len(p.programs)
			p.conn, p.capabilities = c, r
			close(p.alive)
			return nil
		}
		c.end()
		if ctx.Err() != nil || p.generation() == 0 {
			return fmt.Errorf("faults: opening a store in another process: %w", err)
		}
	}
}

// kill kills the process.
func (p *process) kill() {
	p.mu.Lock()
	c := p.conn
	p.conn, p.alive = nil, make(chan struct{})
	p.mu.Unlock()
	c.end()
}

// withProcess calls do with the current process.
func (p *process) withProcess(do func(*os.Process) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return do(p.conn.cmd.Process)
}

func (p *process) programOf(generation int) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if generation < 1 || generation > len(p.programs) {
		return ""
	}
	return ", " + filepath.Base(p.programs[generation-1])
}

func (p *process) generation() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.programs)
}

// awaitConn waits for a process. Its error is the context's, because nothing was sent.
func (p *process) awaitConn(ctx context.Context) (*conn, error) {
	for {
		p.mu.Lock()
		c, alive, closed := p.conn, p.alive, p.closed
		p.mu.Unlock()
		switch {
		case closed:
			return nil, storage.ErrClosed
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case c != nil:
			return c, nil
		}
		select {
		case <-alive:
		case <-ctx.Done():
		}
	}
}

// call sends a request to the process. If the process is killed during the call, the outcome is unknown.
func (p *process) call(ctx context.Context, q request) (response, error) {
	c, err := p.awaitConn(ctx)
	if err != nil {
		return response{}, err
	}
	r, err := c.call(ctx, q)
	if errors.Is(err, errDied) {
		err = fmt.Errorf("%s: %w: %w", q.Method, storage.ErrInconsistent, err)
	}
	return r, err
}

// Close ends the process.
func (p *process) Close() error {
	p.mu.Lock()
	c := p.conn
	p.closed = true
	p.mu.Unlock()
	if c == nil {
		return nil
	}
	_, err := c.call(context.Background(), request{Method: "close"})
	if leaving := c.leave(); err == nil {
		err = leaving
	}
	return err
}

// As offers the capabilities of the handle in the other process, without history.Historian: the handles of this process scan
// revisions, and they read the same history.
func (p *process) As(target any) bool {
	p.mu.Lock()
	can := p.capabilities.Can
	p.mu.Unlock()
	switch t := target.(type) {
	case *storage.Pager:
		*t = processPager{p}
		return can[0]
	case *storage.Resumer:
		*t = processResumer{p}
		return can[1]
	case *storage.Transactor:
		*t = processTransactor{p}
		return can[2]
	}
	return false
}

func singleResource(all []*resourcepb.Resource, err error) (*resourcepb.Resource, error) {
	if err != nil || len(all) != 1 {
		return nil, err
	}
	return all[0], nil
}

func (p *process) resources(ctx context.Context, q request) ([]*resourcepb.Resource, error) {
	r, err := p.call(ctx, q)
	return unmarshalResources(r.Messages), err
}

func (p *process) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	return singleResource(p.resources(ctx, request{Method: "read", Consistency: c, Message: marshal(id)}))
}

func (p *process) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	return singleResource(p.resources(ctx, request{Method: "write", Message: marshal(res)}))
}

func (p *process) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	_, err := p.call(ctx, request{Method: "delete", Message: marshal(id), Text: version})
	return err
}

func (p *process) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	return p.resources(ctx, request{Method: "list", Consistency: c, Type: typ, Tenancy: marshal(tenancy), Text: prefix})
}

// Each optional interface has its own type, because only As knows whether the other process supports it.
type (
	processPager      struct{ *process }
	processResumer    struct{ *process }
	processTransactor struct{ *process }
)

func (p processPager) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string, o storage.ListOptions) (storage.Page, error) {
	r, err := p.call(ctx, request{Method: "page", Consistency: o.Consistency, Type: typ, Tenancy: marshal(tenancy), Text: prefix, Limit: o.Limit, Continue: o.Continue, Revision: o.Revision})
	return storage.Page{Resources: unmarshalResources(r.Messages), Continue: r.Continue, Cursor: r.Cursor}, err
}

func (p *process) OwnerReferences(ctx context.Context, id *resourcepb.ID) (ids []*resourcepb.ID, err error) {
	r, err := p.call(ctx, request{Method: "owned", Message: marshal(id)})
	for _, b := range r.Messages {
		ids = append(ids, unmarshal[resourcepb.ID](b))
	}
	return ids, err
}

func (p processTransactor) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	q := request{Method: "commit"}
	for _, op := range ops {
		q.Ops = append(q.Ops, wireOp{
			Write: marshal(op.Write), Delete: marshal(op.Delete), Check: marshal(op.Check), Version: op.Version, Present: op.Present,
		})
	}
	return p.resources(ctx, q)
}

func (p processTransactor) MaxOps() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.capabilities.Number
}

// conn is a process and the pipes to it.
type conn struct {
	cmd        *exec.Cmd
	in         io.WriteCloser
	generation int
	dead       chan struct{} // closed when the process has ended
	endErr     error         // how, then

	mu       sync.Mutex // of requests on their way
	requests *gob.Encoder

	waiting sync.Mutex
	last    uint64
	answers map[uint64]chan response
}

func newConn(program string) (*conn, error) {
	// Without this check, a program that forgets to call ServeProcess would start itself endlessly.
	if os.Getenv(processEnv) != "" {
		return nil, errors.New("faults: this process was started to serve a handle of a store; call ServeProcess at the start of its main or TestMain")
	}
	cmd := exec.Command(program)
	cmd.Env, cmd.Stderr, cmd.SysProcAttr = append(os.Environ(), processEnv+"=1"), os.Stderr, group()
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("faults: a pipe to another process: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("faults: a pipe to another process: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("faults: starting another process: %w", err)
	}
	c := &conn{cmd: cmd, in: in, dead: make(chan struct{}), requests: gob.NewEncoder(in), answers: map[uint64]chan response{}}
	go func() {
		defer close(c.dead)
		answers := gob.NewDecoder(out)
		for {
			var r response
			if answers.Decode(&r) != nil {
				c.endErr = cmd.Wait()
				return
			}
			c.waiting.Lock()
			answer := c.answers[r.ID]
			delete(c.answers, r.ID)
			c.waiting.Unlock()
			answer <- r
		}
	}()
	return c, nil
}

// end kills the process, whether it is frozen or not.
func (c *conn) end() {
	_ = c.cmd.Process.Kill() // it may have ended by itself
	<-c.dead
	_ = c.in.Close()
}

// leave lets the process end by itself.
func (c *conn) leave() error {
	_ = c.in.Close()
	<-c.dead
	return c.endErr
}

// call returns the answer of the process, however long it takes, because the checks include deadlines.
func (c *conn) call(ctx context.Context, q request) (response, error) {
	if deadline, ok := ctx.Deadline(); ok {
		q.Timeout = max(1, time.Until(deadline))
	}
	answer := make(chan response, 1)
	c.waiting.Lock()
	c.last++
	q.ID = c.last
	c.answers[q.ID] = answer
	c.waiting.Unlock()
	if err := c.send(&q); err != nil {
		<-c.dead
		return response{}, errDied
	}
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) { // a deadline it has itself
			_ = c.send(&request{ID: q.ID, Method: "cancel"})
		}
	})
	defer stop()
	var r response
	select {
	case r = <-answer:
	case <-c.dead:
		select {
		case r = <-answer: // the last that it said
		default:
			return response{}, errDied
		}
	}
	if deadline, ok := ctx.Deadline(); ok && time.Now().After(deadline) {
		<-ctx.Done() // this timer may fire later than the timer of the process
	}
	return r, r.Err.err(ctx)
}

func (c *conn) send(q *request) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests.Encode(q)
}
