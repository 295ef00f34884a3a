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

// withoutMover is a driver that is no Mover.
type withoutMover struct {
	driver.Driver[uint64]
	driver.Historian[uint64]
}

func (withoutMover) StoreID() driver.StoreID       { return driver.StoreID{} }
func (withoutMover) Source() driver.Source[uint64] { return nil }
func (withoutMover) Close() error                  { return nil }

// layer embeds a backend and replaces its Mover.
type layer struct {
	*backend.Backend[uint64]
	driver.Mover
}

// A backend has exactly the capabilities of its driver, and a layer that embeds it can replace them.
func TestAs(t *testing.T) {
	t.Parallel()
	moving := backend.New(&stub{}, backend.Options[uint64]{})
	t.Cleanup(func() { _ = moving.Close() }) // never fails
	other := backend.New(withoutMover{}, backend.Options[uint64]{})
	t.Cleanup(func() { _ = other.Close() }) // never fails
	if _, ok := storage.As[driver.Mover](moving); !ok {
		t.Error("As found no Mover, although the driver is one")
	}
	if _, ok := storage.As[driver.GuardedMover](moving); !ok {
		t.Error("As found no GuardedMover, although the driver is one")
	}
	if _, ok := storage.As[driver.Bulk](moving); ok {
		t.Error("As found a Bulk, although the driver is none")
	}
	if m, ok := storage.As[driver.Mover](other); ok {
		t.Errorf("As found the Mover %T, although the driver is none", m)
	}
	ownMover := &stub{}
	if m, _ := storage.As[driver.Mover](layer{moving, ownMover}); m != (layer{moving, ownMover}) {
		t.Errorf("As found the Mover %T, expected that of the layer", m)
	}
	if _, ok := storage.As[driver.GuardedMover](layer{moving, ownMover}); !ok {
		t.Error("As found no GuardedMover of the embedded backend")
	}
}

// countingMover is a Mover that counts calls.
type countingMover struct {
	*stub
	calls int
}

func (a *countingMover) ReadNote(context.Context, string) ([]byte, string, error) {
	a.calls++
	return nil, "", nil
}

func (a *countingMover) WriteNote(context.Context, string, []byte, string) (string, error) {
	a.calls++
	return "", nil
}

func (a *countingMover) DeleteNote(context.Context, string, string) error { a.calls++; return nil }

// A note outside the limits is refused before the driver is called and before the context is checked.
func TestNoteLimitsPrecedeDriver(t *testing.T) {
	t.Parallel()
	d := &countingMover{stub: &stub{}}
	b := backend.New(d, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	m, _ := storage.As[driver.Mover](b)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	longest := strings.Repeat("n", driver.MaxNoteName)
	for name, says := range map[string]string{
		"":               "is empty",
		longest + "n":    "has 65 bytes, expected at most 64",
		"Note":           `"Note" may only contain lower-case letters and dashes`,
		"\xff":           "lower-case letters and dashes",
		driver.FenceNote: "lower-case letters and dashes",
	} {
		_, _, read := m.ReadNote(ended, name)
		_, write := m.WriteNote(ended, name, make([]byte, driver.MaxNote+1), "")
		for operation, err := range map[string]error{"read": read, "write": write, "delete": m.DeleteNote(ended, name, "")} {
			if !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s of note %q: got %v, expected ErrInvalid with %q", operation, name, err, says)
			}
		}
	}
	if _, err := m.WriteNote(ended, "note", make([]byte, driver.MaxNote+1), ""); !errors.Is(err, storage.ErrTooLarge) || !strings.Contains(err.Error(), "65537 bytes, expected at most 65536") {
		t.Errorf("a value that is too large: got %v, expected ErrTooLarge with both sizes", err)
	}
	if d.calls != 0 {
		t.Errorf("the driver received %d calls for refused notes, expected none", d.calls)
	}
	if _, err := m.WriteNote(t.Context(), longest, make([]byte, driver.MaxNote), ""); err != nil || d.calls != 1 {
		t.Errorf("the largest note: got %v after %d calls", err, d.calls)
	}
}

// releasing is a context with a count of the calls that use it.
type releasing struct {
	context.Context
	done chan struct{}
	held int
}

func (r *releasing) Done() <-chan struct{} { return r.done }

// Package context calls AfterFunc to register with a foreign context.
func (r *releasing) AfterFunc(func()) (stop func() bool) {
	r.held++
	return func() bool { r.held--; return true }
}

// A call releases the caller's context, and thus the timer of its deadline, when it returns.
func TestContextsAreReleased(t *testing.T) {
	t.Parallel()
	b := backend.New(loading{&stub{}}, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	l, _ := storage.As[driver.Bulk](b)
	all := calls(b)
	all["load nothing"] = func(ctx context.Context) error { return l.Load(ctx, nil) }
	all["check columns"] = func(ctx context.Context) error { _, _, err := l.CheckColumns(ctx, nil, 1); return err }
	all["load"] = func(ctx context.Context) error { return l.Load(ctx, make([]driver.Row, 1)) }
	for name, call := range all {
		ctx := &releasing{Context: t.Context(), done: make(chan struct{})}
		_ = call(ctx) // the error does not matter
		if ctx.held != 0 {
			t.Errorf("%s: the context still has %d registrations, expected none", name, ctx.held)
		}
	}
}

type loading struct{ *stub }

func (loading) ReadAfter(context.Context, []byte, int) ([]driver.Row, error) { return nil, nil }

func (loading) CheckColumns(context.Context, []byte, int) (wrong []driver.Key, last []byte, err error) {
	return nil, nil, nil
}

func (loading) Load(context.Context, []driver.Row) error { return nil }

// A driver that can list neither from history nor by itself is refused before it is called.
func TestNewRequiresListings(t *testing.T) {
	t.Parallel()
	defer func() {
		if text := fmt.Sprint(recover()); !strings.Contains(text, "is neither a driver.Historian nor both") {
			t.Errorf("New panics with %q", text)
		}
	}()
	backend.New(struct{ driver.Driver[uint64] }{&stub{}}, backend.Options[uint64]{})
}
