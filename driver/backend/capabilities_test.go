package backend_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
)

// notMoving is a driver that is no Mover.
type notMoving struct {
	driver.Driver[uint64]
	driver.Historian[uint64]
}

func (notMoving) StoreID() driver.StoreID       { return driver.StoreID{} }
func (notMoving) Source() driver.Source[uint64] { return nil }
func (notMoving) Close() error                  { return nil }

// layer is around a backend, and does what a Mover does in its own way.
type layer struct {
	*backend.Backend[uint64]
	driver.Mover
}

// A backend has what its driver has, and no more; a layer that embeds it is found first.
func TestAs(t *testing.T) {
	t.Parallel()
	moving := backend.New(&stub{}, backend.Options[uint64]{})
	t.Cleanup(func() { _ = moving.Close() }) // never fails
	other := backend.New(notMoving{}, backend.Options[uint64]{})
	t.Cleanup(func() { _ = other.Close() }) // never fails
	if _, ok := storage.As[driver.Mover](moving); !ok {
		t.Error("the backend of a Mover has none")
	}
	if _, ok := storage.As[driver.GuardedMover](moving); !ok {
		t.Error("the backend of a GuardedMover has none")
	}
	if _, ok := storage.As[driver.Bulk](moving); ok {
		t.Error("the backend has a Bulk that its driver is not")
	}
	if m, ok := storage.As[driver.Mover](other); ok {
		t.Errorf("the backend has a Mover that its driver is not: %T", m)
	}
	own := &stub{}
	if m, _ := storage.As[driver.Mover](layer{moving, own}); m != (layer{moving, own}) {
		t.Errorf("a layer's own Mover is %T", m)
	}
	if _, ok := storage.As[driver.GuardedMover](layer{moving, own}); !ok {
		t.Error("what a layer leaves to the backend is not found")
	}
}

// asked is a Mover that counts what reaches it.
type asked struct {
	*stub
	calls int
}

func (a *asked) ReadNote(context.Context, string) ([]byte, string, error) {
	a.calls++
	return nil, "", nil
}

func (a *asked) WriteNote(context.Context, string, []byte, string) (string, error) {
	a.calls++
	return "", nil
}

func (a *asked) DeleteNote(context.Context, string, string) error { a.calls++; return nil }

// What no Mover has to take is refused before the driver is asked, and before the context is looked at.
func TestNoteLimits(t *testing.T) {
	t.Parallel()
	d := &asked{stub: &stub{}}
	b := backend.New(d, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	m, _ := storage.As[driver.Mover](b)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	longest := strings.Repeat("n", driver.MaxNoteName)
	for name, says := range map[string]string{
		"":               "is empty",
		longest + "n":    "has 65 bytes, expected at most 64",
		"Note":           `"Note" has other characters than lower-case letters and dashes`,
		"\xff":           "other characters",
		driver.FenceNote: "other characters",
	} {
		_, _, read := m.ReadNote(over, name)
		_, write := m.WriteNote(over, name, make([]byte, driver.MaxNote+1), "")
		for what, err := range map[string]error{"read": read, "write": write, "delete": m.DeleteNote(over, name, "")} {
			if !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s of note %q: got %v, expected ErrInvalid with %q", what, name, err, says)
			}
		}
	}
	if _, err := m.WriteNote(over, "note", make([]byte, driver.MaxNote+1), ""); !errors.Is(err, storage.ErrTooLarge) || !strings.Contains(err.Error(), "65537 bytes, expected at most 65536") {
		t.Errorf("a value that is too large: got %v, expected ErrTooLarge with both sizes", err)
	}
	if d.calls != 0 {
		t.Errorf("the driver was asked %d times for what is refused", d.calls)
	}
	if _, err := m.WriteNote(t.Context(), longest, make([]byte, driver.MaxNote), ""); err != nil || d.calls != 1 {
		t.Errorf("the largest note: got %v after %d calls", err, d.calls)
	}
}

// releasing is a context that counts the calls which hold on to it.
type releasing struct {
	context.Context
	done chan struct{}
	held int
}

func (r *releasing) Done() <-chan struct{} { return r.done }

// AfterFunc is how package context holds on to another package's context.
func (r *releasing) AfterFunc(func()) (stop func() bool) {
	r.held++
	return func() bool { r.held--; return true }
}

// A call releases the caller's context, and with it the timer of its deadline, when it returns.
func TestContextsAreReleased(t *testing.T) {
	t.Parallel()
	b := backend.New(loading{&stub{}}, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	l, _ := storage.As[driver.Bulk](b)
	all := calls(b)
	all["load nothing"] = func(ctx context.Context) error { return l.Load(ctx, nil) }
	all["load"] = func(ctx context.Context) error { return l.Load(ctx, make([]driver.Row, 1)) }
	for name, call := range all {
		ctx := &releasing{Context: t.Context(), done: make(chan struct{})}
		_ = call(ctx) // whatever comes of it
		if ctx.held != 0 {
			t.Errorf("%s: the context is still held by %d", name, ctx.held)
		}
	}
}

type loading struct{ *stub }

func (loading) ReadAfter(context.Context, []byte, int) ([]driver.Row, error) { return nil, nil }

func (loading) Load(context.Context, []driver.Row) error { return nil }

// A driver that has neither history nor listings of its own is refused before anything is asked of it.
func TestDriverWithoutListings(t *testing.T) {
	t.Parallel()
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "is neither a driver.Historian nor both") {
			t.Errorf("New panics with %q", text)
		}
	}()
	backend.New(struct{ driver.Driver[uint64] }{&stub{}}, backend.Options[uint64]{})
}
