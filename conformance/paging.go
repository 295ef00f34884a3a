package conformance

import (
	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// pages reads a listing to its end, limit at a time, and returns it with its cursor.
func (s *suite) pages(pager storage.Pager, f filter, limit int) ([]*resourcepb.Resource, string) {
	s.Helper()
	return s.pagesFrom(pager, f, s.page(pager, f, storage.ListOptions{Consistency: strong, Limit: limit}), limit)
}

// pagesFrom reads the rest of a listing whose first page is given.
func (s *suite) pagesFrom(pager storage.Pager, f filter, page storage.Page, limit int) ([]*resourcepb.Resource, string) {
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

func (s *suite) page(pager storage.Pager, f filter, opts storage.ListOptions) storage.Page {
	s.Helper()
	page, err := pager.ListPage(s.ctx, f.typ, f.tenancy, f.prefix, opts)
	s.succeeds("ListPage of "+f.String(), err)
	if opts.Limit > 0 && len(page.Resources) > opts.Limit {
		s.Fatalf("a page of %d resources, the limit is %d", len(page.Resources), opts.Limit)
	}
	return page
}
