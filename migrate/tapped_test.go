package migrate

import (
	"context"
	"errors"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// tap intercepts every changing call of one process to its stores: its steps.
type tap struct {
	// at is called before and after each step, in its goroutine. An error before the step becomes its result.
	at func(step int, before bool, what string) error
	// read is called after a read of a store; it may be nil.
	read func(role string)

	mu      sync.Mutex
	steps   int
	frozen  chan struct{} // closed when the process resumes; nil if it was never suspended
	stopped chan struct{} // closed when the process is suspended
	dead    bool
}

var errDead = errors.New("the process is dead")

func newTap() *tap { return &tap{stopped: make(chan struct{})} }

// freeze blocks every call of the process until thaw.
func (t *tap) freeze() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.frozen == nil {
		t.frozen = make(chan struct{})
		close(t.stopped)
	}
}

func (t *tap) thaw() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.frozen != nil {
		close(t.frozen)
	}
}

// die makes every later call of the process fail.
func (t *tap) die() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = true
}

// pass waits while the process is suspended. It ends with the test, not with the call, because a suspended process notices nothing.
func (t *tap) pass() error {
	t.mu.Lock()
	frozen, dead := t.frozen, t.dead
	t.mu.Unlock()
	if dead {
		return errDead
	}
	if frozen != nil {
		<-frozen
	}
	return nil
}

// do runs a step.
func (t *tap) do(what string, call func() error) error {
	if err := t.pass(); err != nil {
		return err
	}
	t.mu.Lock()
	step := t.steps
	t.steps++
	t.mu.Unlock()
	if t.at != nil {
		if err := t.at(step, true, what); err != nil {
			return err
		}
		if err := t.pass(); err != nil {
			return err
		}
	}
	err := call()
	if t.at != nil {
		if err := t.at(step, false, what); err != nil {
			return err
		}
		if err := t.pass(); err != nil {
			return err
		}
	}
	return err
}

// tapped is a backend with a tap.
type tapped struct {
	storage.Backend
	tap   *tap
	role  string
	plain bool // without epochs of the fence, guards and bookmarks
	watch func(storage.Watch) storage.Watch
}

func (b *tapped) WriteCAS(ctx context.Context, res *resourcepb.Resource) (out *resourcepb.Resource, err error) {
	err = b.tap.do(b.role+" write", func() (err error) {
		out, err = b.Backend.WriteCAS(ctx, res)
		return err
	})
	return out, err
}

func (b *tapped) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	return b.tap.do(b.role+" delete", func() error { return b.Backend.DeleteCAS(ctx, id, version) })
}

func (b *tapped) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	if err := b.tap.pass(); err != nil {
		return nil, err
	}
	res, err := b.Backend.Read(ctx, c, id)
	if b.tap.read != nil {
		b.tap.read(b.role)
	}
	if err := b.tap.pass(); err != nil {
		return nil, err
	}
	return res, err
}

func (b *tapped) As(target any) bool {
	switch p := target.(type) {
	case *driver.Mover:
		inner, ok := storage.As[driver.Mover](b.Backend)
		*p = tappedMover{inner, b}
		return ok
	case *driver.GuardedMover:
		inner, ok := storage.As[driver.GuardedMover](b.Backend)
		*p = tappedGuarded{tappedMover{inner, b}, inner}
		return ok && !b.plain
	case *storage.Transactor:
		inner, ok := storage.As[storage.Transactor](b.Backend)
		*p = tappedTransactor{inner, b}
		return ok
	case *storage.Pager:
		inner, ok := storage.As[storage.Pager](b.Backend)
		*p = inner
		return ok
	case *storage.Resumer:
		*p = b
		return true
	case *driver.ColumnChecker:
		inner, ok := storage.As[driver.ColumnChecker](b.Backend)
		*p = inner
		return ok
	case *driver.Bulk:
		inner, ok := storage.As[driver.Bulk](b.Backend)
		*p = tappedBulk{inner, b}
		return ok
	}
	return false
}

func (b *tapped) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	if err := b.tap.pass(); err != nil {
		return nil, err
	}
	return b.watching(b.Backend.WatchList(ctx, typ, tenancy, prefix))
}

func (b *tapped) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix, cursor string) (storage.Watch, error) {
	if err := b.tap.pass(); err != nil {
		return nil, err
	}
	resumer, _ := storage.As[storage.Resumer](b.Backend)
	return b.watching(resumer.WatchFrom(ctx, typ, tenancy, prefix, cursor))
}

func (b *tapped) watching(w storage.Watch, err error) (storage.Watch, error) {
	if err != nil {
		return nil, err
	}
	if b.watch != nil {
		w = b.watch(w)
	}
	if b.plain {
		w = struct{ storage.Watch }{w}
	}
	return w, nil
}

type tappedTransactor struct {
	storage.Transactor
	b *tapped
}

func (t tappedTransactor) Commit(ctx context.Context, ops []storage.Op) (out []*resourcepb.Resource, err error) {
	err = t.b.tap.do(t.b.role+" commit", func() (err error) {
		out, err = t.Transactor.Commit(ctx, ops)
		return err
	})
	return out, err
}

type tappedBulk struct {
	driver.Bulk
	b *tapped
}

func (t tappedBulk) Load(ctx context.Context, rows []driver.Row) error {
	return t.b.tap.do(t.b.role+" load", func() error { return t.Bulk.Load(ctx, rows) })
}

type tappedMover struct {
	driver.Mover
	b *tapped
}

func (m tappedMover) WriteNote(ctx context.Context, name string, value []byte, revision string) (next string, err error) {
	err = m.b.tap.do(m.b.role+" note "+name, func() (err error) {
		next, err = m.Mover.WriteNote(ctx, name, value, revision)
		return err
	})
	return next, err
}

func (m tappedMover) DeleteNote(ctx context.Context, name, revision string) error {
	return m.b.tap.do(m.b.role+" delete note "+name, func() error { return m.Mover.DeleteNote(ctx, name, revision) })
}

func (m tappedMover) Fence(ctx context.Context) (driver.FenceState, error) {
	if err := m.b.tap.pass(); err != nil {
		return driver.FenceState{}, err
	}
	return m.Mover.Fence(ctx)
}

func (m tappedMover) SetFence(ctx context.Context, target *string) error {
	return m.b.tap.do(m.b.role+" fence", func() error { return m.Mover.SetFence(ctx, target) })
}

type tappedGuarded struct {
	tappedMover
	inner driver.GuardedMover
}

func (m tappedGuarded) SetFenceAt(ctx context.Context, fence *driver.Fence, epoch string) (next string, err error) {
	err = m.b.tap.do(m.b.role+" fence", func() (err error) {
		next, err = m.inner.SetFenceAt(ctx, fence, epoch)
		return err
	})
	return next, err
}

func (tappedGuarded) Guards() {}

// disturbed is a store with hooks at its fence and notes.
type disturbed struct {
	*tapped
	look  func()                          // called before each read of the fence
	saw   func()                          // called after it
	write func(name string, value []byte) // called before each write of a note
}

func (d *disturbed) As(target any) bool {
	ok := d.tapped.As(target)
	if p, is := target.(*driver.Mover); is {
		*p = disturbedMover{*p, d}
	}
	return ok
}

type disturbedMover struct {
	driver.Mover
	d *disturbed
}

func (m disturbedMover) Fence(ctx context.Context) (driver.FenceState, error) {
	if m.d.look != nil {
		m.d.look()
	}
	state, err := m.Mover.Fence(ctx)
	if m.d.saw != nil {
		m.d.saw()
	}
	return state, err
}

func (m disturbedMover) WriteNote(ctx context.Context, name string, value []byte, revision string) (string, error) {
	if m.d.write != nil {
		m.d.write(name, value)
	}
	return m.Mover.WriteNote(ctx, name, value, revision)
}
