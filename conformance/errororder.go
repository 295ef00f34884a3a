package conformance

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// badCalls returns calls of every method with invalid arguments, each with its expected error.
func badCalls(s *suite, stored *resourcepb.Resource) map[string]badCall {
	large := newThing("large")
	large.Data = &anypb.Any{TypeUrl: "example.com/Large", Value: make([]byte, 1<<20+1)}
	const neither = storage.ReadConsistency(7)
	calls := map[string]badCall{}
	add := func(name string, want error, call func(ctx context.Context) error) { calls[name] = badCall{want, call} }
	read := func(c storage.ReadConsistency, id *resourcepb.ID) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.b.Read(ctx, c, id)
			return err
		}
	}
	write := func(res *resourcepb.Resource) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.b.WriteCAS(ctx, res)
			return err
		}
	}
	list := func(c storage.ReadConsistency, tenancy *resourcepb.Tenancy) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.b.List(ctx, c, things, tenancy, "")
			return err
		}
	}
	add("Read of a nil id", storage.ErrInvalid, read(strong, nil))
	add("Read at an unknown consistency", storage.ErrInvalid, read(neither, stored.Id))
	add("WriteCAS of a nil resource", storage.ErrInvalid, write(nil))
	add("WriteCAS without a uid", storage.ErrInvalid, write(newResource(withUid(stored.Id, ""))))
	add("WriteCAS of too large a resource", storage.ErrTooLarge, write(large))
	add("DeleteCAS of a nil id", storage.ErrInvalid, func(ctx context.Context) error { return s.b.DeleteCAS(ctx, nil, "1") })
	add("List at an unknown consistency", storage.ErrInvalid, list(neither, home))
	add("List in a nil tenancy", storage.ErrInvalid, list(eventual, nil))
	add("WatchList in a nil tenancy", storage.ErrInvalid, func(ctx context.Context) error {
		w, err := s.b.WatchList(ctx, things, nil, "")
		return closeUnexpected(w, err)
	})
	add("OwnerReferences without a uid", storage.ErrInvalid, func(ctx context.Context) error {
		_, err := s.b.OwnerReferences(ctx, withUid(stored.Id, ""))
		return err
	})
	if pager, ok := storage.As[storage.Pager](s.b); ok {
		page := func(tenancy *resourcepb.Tenancy, opts storage.ListOptions) func(ctx context.Context) error {
			return func(ctx context.Context) error {
				_, err := pager.ListPage(ctx, things, tenancy, "", opts)
				return err
			}
		}
		add("ListPage in a nil tenancy", storage.ErrInvalid, page(nil, storage.ListOptions{}))
		add("ListPage with a negative limit", storage.ErrInvalid, page(home, storage.ListOptions{Limit: -1}))
		add("ListPage with an invalid token", storage.ErrInvalid, page(home, storage.ListOptions{Continue: "garbage"}))
	}
	if resumer, ok := storage.As[storage.Resumer](s.b); ok {
		add("WatchFrom an invalid cursor", storage.ErrInvalid, func(ctx context.Context) error {
			w, err := resumer.WatchFrom(ctx, things, home, "", "garbage")
			return closeUnexpected(w, err)
		})
	}
	if transactor, ok := storage.As[storage.Transactor](s.b); ok {
		commit := func(ops ...storage.Op) func(ctx context.Context) error {
			return func(ctx context.Context) error {
				_, err := transactor.Commit(ctx, ops)
				return err
			}
		}
		add("Commit of nothing in an operation", storage.ErrInvalid, commit(storage.Op{}))
		add("Commit of too large a resource", storage.ErrTooLarge, commit(storage.Op{Write: large}))
		many := make([]storage.Op, transactor.MaxOps()+1)
		for i := range many {
			many[i].Write = newThing(fmt.Sprint("name-", i))
		}
		add("Commit of too many operations", storage.ErrTooLarge, commit(many...))
	}
	return calls
}

type badCall struct {
	want error
	call func(ctx context.Context) error
}

// closeUnexpected closes a watch that should not be there.
func closeUnexpected(w storage.Watch, err error) error {
	if err == nil {
		w.Close()
	}
	return err
}

// deadlineOrder makes calls with several errors: a closed backend takes precedence over invalid arguments, and these over a
// cancelled context. The answer must not depend on the order of an adapter's checks.
func deadlineOrder(s *suite) {
	first := func(what string, err, want error) {
		s.Helper()
		s.wantError(what, err, want)
		for _, other := range []error{storage.ErrClosed, storage.ErrInvalid, storage.ErrTooLarge, context.Canceled} {
			if !errors.Is(want, other) && errors.Is(err, other) {
				s.Fatalf("%s: got error %v, want %q alone", what, quoteError(err), want)
			}
		}
	}
	w := s.watchAll()
	stored := s.create("a")
	s.expectUpsert(w, stored)
	bad, good := badCalls(s, stored), allCalls(s, stored, w.Cursor())
	for name, c := range bad {
		first(name, c.call(s.ctx), c.want)
		first(name+", with a cancelled context", c.call(cancelledContext()), c.want)
	}
	s.checkStored(stored)
	s.closeBackend(s.b)
	for name, c := range bad {
		first(name+", after Close", c.call(s.ctx), storage.ErrClosed)
		first(name+", after Close and with a cancelled context", c.call(cancelledContext()), storage.ErrClosed)
	}
	for name, call := range good {
		first(name+", after Close and with a cancelled context", call(cancelledContext()), storage.ErrClosed)
	}
}
