package migrate

import (
	"context"
	"errors"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// tap stands between one process and the stores that it uses, and sees every call that changes something: its steps.
type tap struct {
	// at is called before and after each step, by the goroutine that makes it. An error before it is what the call comes to.
	at func(step int, before bool, what string) error
	// read is called when something has been read from a store; it may be nil.
	read func(role string)

	mu      sync.Mutex
	steps   int
	frozen  chan struct{} // closed when the process goes on; nil where it was never frozen
	stopped chan struct{} // closed when the process is frozen
	dead    bool
}

var errDead = errors.New("the process is dead")

func newTap() *tap { return &tap{stopped: make(chan struct{})} }

// freeze holds up every call of the process from now on, until thaw.
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

// die makes every call of the process fail from now on.
func (t *tap) die() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.dead = true
}

// pass waits while the process is frozen. It ends with the test, not with the call: a process that is frozen notices nothing.
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

// do carries out a step.
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

// tapped is a backend behind a tap.
type tapped struct {
	storage.Backend
	tap   *tap
	role  string
	plain bool // without an epoch of the fence, guards and bookmarks
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

func (m tappedGuarded) SetFenceAt(ctx context.Context, target *string, epoch string) (next string, err error) {
	err = m.b.tap.do(m.b.role+" fence", func() (err error) {
		next, err = m.inner.SetFenceAt(ctx, target, epoch)
		return err
	})
	return next, err
}

func (tappedGuarded) Guards() {}

// disturbed is a store whose fence and notes a test stands in front of.
type disturbed struct {
	*tapped
	look  func()                          // is called before each look at the fence
	saw   func()                          // is called after it
	write func(name string, value []byte) // is called before each note is written
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
