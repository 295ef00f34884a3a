package conformance

import (
	"context"
	"reflect"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A target is the store under test, with one or more handles.
type target struct {
	*assertions
	h    *Harness
	b    storage.Backend
	url  string // of the store, or ""
	more func(context.Context) (storage.Backend, error)
}

// closeBackend demands that Close succeeds before the timeout.
func (s *target) closeBackend(b storage.Backend) {
	s.Helper()
	outcome := make(chan error, 1)
	go func() { outcome <- b.Close() }()
	s.noError("Close", s.result("Close", outcome))
}

// capability returns a capability of a handle, which must have it.
func capability[T any](s *target, b storage.Backend) T {
	s.Helper()
	c, ok := storage.As[T](b)
	if !ok {
		s.Fatalf("the backend is no %v", reflect.TypeFor[T]())
	}
	return c
}

func (s *target) transactor() storage.Transactor {
	s.Helper()
	return capability[storage.Transactor](s, s.b)
}

// commit commits ops, which must succeed.
func (s *target) commit(ops ...storage.Op) []*resourcepb.Resource {
	s.Helper()
	results, err := s.transactor().Commit(s.ctx, ops)
	s.noError("Commit", err)
	if len(results) != len(ops) {
		s.Fatalf("Commit of %d operations returned %d results", len(ops), len(results))
	}
	return results
}

// handles returns n handles on the store. The first is the handle of the case.
func (s *target) handles(n int) []storage.Backend {
	s.Helper()
	handles := []storage.Backend{s.b}
	for len(handles) < n {
		handles = append(handles, s.another())
	}
	return handles
}

func (s *target) resumer() storage.Resumer {
	s.Helper()
	return capability[storage.Resumer](s, s.b)
}

// historian returns s.b's history.
func (s *target) historian() history.Historian {
	s.Helper()
	return s.historianOf(s.b)
}

func (s *target) historianOf(b storage.Backend) history.Historian {
	s.Helper()
	return capability[history.Historian](s, b)
}

// list makes a strong list.
func (s *target) list(typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) []*resourcepb.Resource {
	s.Helper()
	resources, err := s.b.List(s.ctx, strong, typ, tenancy, prefix)
	s.noError("List", err)
	return resources
}

// checkOwned demands that exactly these children name owner, in key order. OwnerReferences is an eventual read, so checkOwned
// retries.
func (s *target) checkOwned(owner *resourcepb.ID, children ...*resourcepb.ID) {
	s.Helper()
	s.eventually("OwnerReferences", func() error {
		got, err := s.b.OwnerReferences(s.ctx, owner)
		if err != nil {
			return err
		}
		return compareIDs(got, children)
	})
}

// pages reads a listing to its end, in pages of limit resources, and returns it with its cursor.
func (s *target) pages(pager storage.Pager, f filter, limit int) ([]*resourcepb.Resource, string) {
	s.Helper()
	return s.pagesFrom(pager, f, s.page(pager, f, storage.ListOptions{Consistency: strong, Limit: limit}), limit)
}

// pagesFrom reads the rest of a listing after its given first page.
func (s *target) pagesFrom(pager storage.Pager, f filter, page storage.Page, limit int) ([]*resourcepb.Resource, string) {
	s.Helper()
	resources, cursor := page.Resources, page.Cursor
	for empty := 0; page.Continue != ""; {
		page = s.page(pager, f, storage.ListOptions{Consistency: strong, Limit: limit, Continue: page.Continue})
		if page.Cursor != cursor {
			s.Fatalf("a page has cursor %q, the first one had %q", page.Cursor, cursor)
		}
		resources = append(resources, page.Resources...)
		if empty++; len(page.Resources) > 0 {
			empty = 0
		} else if empty > 1000 {
			s.Fatal("a thousand empty pages in a row")
		}
	}
	return resources, cursor
}

func (s *target) page(pager storage.Pager, f filter, opts storage.ListOptions) storage.Page {
	s.Helper()
	page, err := pager.ListPage(s.ctx, f.typ, f.tenancy, f.prefix, opts)
	s.noError("ListPage of "+f.String(), err)
	if opts.Limit > 0 && len(page.Resources) > opts.Limit {
		s.Fatalf("a page of %d resources, the limit is %d", len(page.Resources), opts.Limit)
	}
	return page
}

func (s *target) pager() storage.Pager {
	s.Helper()
	return capability[storage.Pager](s, s.b)
}

// open gives s a new store.
func (s *target) open() {
	s.Helper()
	s.url, s.more = s.h.Store(s.TB)
	s.b = s.another()
}

// another opens one more handle on the store.
func (s *target) another() storage.Backend {
	s.Helper()
	b, err := s.more(s.ctx)
	s.noError("opening a store", err)
	s.closeAtEnd(b)
	return b
}

func (s *target) closeAtEnd(b storage.Backend) {
	s.Cleanup(func() {
		if err := b.Close(); err != nil {
			s.Errorf("Close: %v", err)
		}
	})
}

// scale returns n, or less if writes are slow.
func (s *target) scale(n int) int {
	if s.h.Slow {
		return max(1, n/4)
	}
	return n
}

// write writes res, which must succeed.
func (s *target) write(res *resourcepb.Resource) *resourcepb.Resource {
	s.Helper()
	stored, err := s.b.WriteCAS(s.ctx, res)
	if err != nil {
		s.Fatalf("WriteCAS(%v): %v", res.GetId(), err)
	}
	if stored.GetVersion() == "" {
		s.Fatalf("WriteCAS(%v) returned no version", res.GetId())
	}
	return stored
}

// create stores a new Thing.
func (s *target) create(name string) *resourcepb.Resource {
	s.Helper()
	return s.write(newThing(name))
}

// update changes a stored resource.
func (s *target) update(stored *resourcepb.Resource) *resourcepb.Resource {
	s.Helper()
	return s.write(withNewData(stored))
}

// delete removes a stored resource.
func (s *target) delete(stored *resourcepb.Resource) {
	s.Helper()
	if err := s.b.DeleteCAS(s.ctx, stored.Id, stored.Version); err != nil {
		s.Fatalf("DeleteCAS(%v, %q): %v", stored.Id, stored.Version, err)
	}
}

// read makes a strong read.
func (s *target) read(id *resourcepb.ID) *resourcepb.Resource {
	s.Helper()
	res, err := s.b.Read(s.ctx, strong, id)
	if err != nil {
		s.Fatalf("Read(%v): %v", id, err)
	}
	return res
}

// checkStored demands that the store holds exactly want under its key.
func (s *target) checkStored(want *resourcepb.Resource) {
	s.Helper()
	s.equal("Read", s.read(want.Id), want)
}

// checkAbsent demands that the store holds nothing under id's key.
func (s *target) checkAbsent(id *resourcepb.ID) {
	s.Helper()
	_, err := s.b.Read(s.ctx, strong, withUid(id, ""))
	s.wantError("Read of an absent resource", err, storage.ErrNotFound)
}
