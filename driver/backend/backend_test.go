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

// stub is a driver whose methods return the error err.
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

func (s *stub) SetFenceAt(context.Context, *driver.Fence, string) (string, error) { return "", s.err }

func resource() *resourcepb.Resource {
	return &resourcepb.Resource{Id: driver.Key{Group: "g", Kind: "k", Name: "n"}.ID("u", "v")}
}

// calls returns the calls that can return an error of Apply or of a Mover.
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
		"fence": func(ctx context.Context) error {
			_, err := m.SetFenceAt(ctx, &driver.Fence{Target: "there"}, "")
			return err
		},
	}
}

// An error names its operation and its subject once, whichever layer detected it.
func TestErrorsNameOperationOnce(t *testing.T) {
	t.Parallel()
	s := &stub{}
	b := backend.New(s, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	for name, call := range calls(b) {
		for _, s.err = range []error{driver.Conflict("note"), errors.New("broken"), &storage.OpError{Err: storage.ErrCASFailure}} {
			text := fmt.Sprint(call(t.Context()))
			for _, part := range []string{`"n"`, `journal note "note"`, "fence: ", "write ", "commit "} {
				if strings.Count(text, part) > 1 {
					t.Errorf("%s: %q contains %q more than once", name, text, part)
				}
			}
		}
	}
}

// An expired deadline matches ErrInconsistent even if the driver returns only the context's error, which the result still matches.
func TestDeadlineErrorsMatchErrInconsistent(t *testing.T) {
	t.Parallel()
	s := &stub{err: context.DeadlineExceeded}
	b := backend.New(s, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	for name, call := range calls(b) {
		if err := call(t.Context()); !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v, expected ErrInconsistent and the context's error", name, err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := call(ended); !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrInconsistent) {
			t.Errorf("%s with an ended context: %v, expected only the context's error", name, err)
		}
	}
}

// A failed transaction of one operation is an OpError; a failed single write or delete is not.
func TestOpErrorIsForTransactionsOnly(t *testing.T) {
	t.Parallel()
	s := &stub{err: &storage.OpError{Err: storage.ErrWrongUid}}
	b := backend.New(s, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	for _, name := range []string{"write", "delete", "commit"} {
		err := calls(b)[name](t.Context())
		var opErr *storage.OpError
		if is := errors.As(err, &opErr); is != (name == "commit") || !errors.Is(err, storage.ErrWrongUid) {
			t.Errorf("%s: got %v (an OpError: %t), expected ErrWrongUid, as an OpError: %t", name, err, is, name == "commit")
		}
	}
}

// If an attempt may have been applied, the error does not match the refusal of a later attempt.
func TestUncertainWriteIsNotRefused(t *testing.T) {
	t.Parallel()
	s := &stub{}
	b := backend.New(s, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	for _, refusal := range []error{&storage.MovedError{Target: "there"}, storage.ErrFenced, storage.ErrCompacted, &storage.OpError{Err: storage.ErrCASFailure}} {
		s.err = fmt.Errorf("%w: the handle was closed: %w: %w", storage.ErrInconsistent, storage.ErrClosed, refusal)
		for _, name := range []string{"write", "delete", "commit"} {
			err := calls(b)[name](t.Context())
			if !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, storage.ErrClosed) || !strings.Contains(err.Error(), refusal.Error()) {
				t.Errorf("%s: got %v, expected ErrInconsistent, ErrClosed and the text of the refusal", name, err)
			}
			var opErr *storage.OpError
			if errors.Is(err, storage.ErrFenced) || errors.Is(err, storage.ErrCompacted) || errors.Is(err, storage.ErrCASFailure) || errors.As(err, &opErr) {
				t.Errorf("%s: %v matches the refusal", name, err)
			}
		}
	}
}
