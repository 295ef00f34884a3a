package migrate

import (
	"context"
	"errors"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/handover"
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
	store, _ := storage.As[handover.Store](b.Backend)
	switch p := target.(type) {
	case *handover.Store:
		*p = tappedStore{store, b}
		return true
	case *handover.EpochFencer:
		epochs, ok := storage.As[handover.EpochFencer](b.Backend)
		if ok && !b.plain {
			*p = tappedEpochs{tappedStore{store, b}, epochs}
		}
		return ok && !b.plain
	case *handover.Guarder:
		guards, ok := storage.As[handover.Guarder](b.Backend)
		*p = guards
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
	case *handover.Reader:
		inner, ok := storage.As[handover.Reader](b.Backend)
		*p = inner
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

type tappedStore struct {
	handover.Store
	b *tapped
}

func (s tappedStore) WriteJournal(ctx context.Context, name string, value []byte, revision string) (next string, err error) {
	err = s.b.tap.do(s.b.role+" note "+name, func() (err error) {
		next, err = s.Store.WriteJournal(ctx, name, value, revision)
		return err
	})
	return next, err
}

func (s tappedStore) DeleteJournal(ctx context.Context, name, revision string) error {
	return s.b.tap.do(s.b.role+" delete note "+name, func() error { return s.Store.DeleteJournal(ctx, name, revision) })
}

func (s tappedStore) Fence(ctx context.Context, target string) error {
	return s.b.tap.do(s.b.role+" fence", func() error { return s.Store.Fence(ctx, target) })
}

func (s tappedStore) Unfence(ctx context.Context) error {
	return s.b.tap.do(s.b.role+" unfence", func() error { return s.Store.Unfence(ctx) })
}

type tappedEpochs struct {
	tappedStore
	epochs handover.EpochFencer
}

func (s tappedEpochs) FenceState(ctx context.Context) (handover.FenceState, error) {
	if err := s.b.tap.pass(); err != nil {
		return handover.FenceState{}, err
	}
	return s.epochs.FenceState(ctx)
}

func (s tappedEpochs) FenceAt(ctx context.Context, target, epoch string) (next string, err error) {
	err = s.b.tap.do(s.b.role+" fence", func() (err error) {
		next, err = s.epochs.FenceAt(ctx, target, epoch)
		return err
	})
	return next, err
}

func (s tappedEpochs) UnfenceAt(ctx context.Context, epoch string) (next string, err error) {
	err = s.b.tap.do(s.b.role+" unfence", func() (err error) {
		next, err = s.epochs.UnfenceAt(ctx, epoch)
		return err
	})
	return next, err
}
