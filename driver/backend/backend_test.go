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
	"github.com/ashlar-dev/storage/resourcepb"
)

// stub is a driver that answers what a test has it answer. It is for what the tier decides by itself.
type stub struct {
	driver.Driver[uint64]
	driver.Historian[uint64]
	driver.GuardedMover
	err error
}

func (*stub) StoreID() driver.StoreID                          { return driver.StoreID{} }
func (*stub) Source() driver.Source[uint64]                    { return nil }
func (*stub) Close() error                                     { return nil }
func (s *stub) Apply(context.Context, []driver.Mutation) error { return s.err }

func (s *stub) ReadNote(context.Context, string) ([]byte, string, error) { return nil, "", s.err }

func (s *stub) WriteNote(context.Context, string, []byte, string) (string, error) { return "", s.err }

func (s *stub) DeleteNote(context.Context, string, string) error { return s.err }

func (s *stub) SetFenceAt(context.Context, *string, string) (string, error) { return "", s.err }

func resource() *resourcepb.Resource {
	return &resourcepb.Resource{Id: driver.Key{Group: "g", Kind: "k", Name: "n"}.ID("u", "v")}
}

// calls are those that may meet an error of Apply or of a Mover.
func calls(b *backend.Backend[uint64]) map[string]func(ctx context.Context) error {
	m, _ := storage.As[driver.GuardedMover](b)
	res := resource()
	return map[string]func(ctx context.Context) error{
		"write":  func(ctx context.Context) error { _, err := b.WriteCAS(ctx, res); return err },
		"delete": func(ctx context.Context) error { return b.DeleteCAS(ctx, res.Id, "v") },
		"commit": func(ctx context.Context) error {
			_, err := b.Commit(ctx, []storage.Op{{Write: res}})
			return err
		},
		"read a note":   func(ctx context.Context) error { _, _, err := m.ReadNote(ctx, "note"); return err },
		"write a note":  func(ctx context.Context) error { _, err := m.WriteNote(ctx, "note", nil, ""); return err },
		"delete a note": func(ctx context.Context) error { return m.DeleteNote(ctx, "note", "") },
		"fence":         func(ctx context.Context) error { _, err := m.SetFenceAt(ctx, new("there"), ""); return err },
	}
}

// An error says once what was to be done with what, whoever found out about it.
func TestErrorsNameThingsOnce(t *testing.T) {
	t.Parallel()
	s := &stub{}
	b := backend.New(s, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	for name, call := range calls(b) {
		for _, s.err = range []error{driver.Conflict("note"), errors.New("broken"), &storage.OpError{Err: storage.ErrCASFailure}} {
			text := fmt.Sprint(call(t.Context()))
			for _, part := range []string{`"n"`, `journal note "note"`, "fence: ", "write ", "commit "} {
				if strings.Count(text, part) > 1 {
					t.Errorf("%s: %q says %q more than once", name, text, part)
				}
			}
		}
	}
}

// An error for lack of time is an inconsistency, also where a driver says only the former, and keeps what it matched.
func TestErrorsOfTime(t *testing.T) {
	t.Parallel()
	s := &stub{err: context.DeadlineExceeded}
	b := backend.New(s, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	for name, call := range calls(b) {
		if err := call(t.Context()); !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, expected ErrInconsistent and the context's error", name, err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := call(over); !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrInconsistent) {
			t.Errorf("%s with a context that is over: %v, expected the context's error alone", name, err)
		}
	}
}

// A transaction of one operation says which one failed; single writes and deletes do not.
func TestOneOperation(t *testing.T) {
	t.Parallel()
	s := &stub{err: &storage.OpError{Err: storage.ErrWrongUid}}
	b := backend.New(s, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	for _, name := range []string{"write", "delete", "commit"} {
		err := calls(b)[name](t.Context())
		var one *storage.OpError
		if is := errors.As(err, &one); is != (name == "commit") || !errors.Is(err, storage.ErrWrongUid) {
			t.Errorf("%s: %v is an OpError: %v", name, err, is)
		}
	}
}
