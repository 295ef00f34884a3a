package conformance

import (
	"fmt"

	"github.com/ashlar-dev/storage"
)

// historianPages: a listing at a revision is the scan at it.
func historianPages(s *suite) {
	h, pager := s.historian(), s.pager()
	past := randomWrites(s, h, s.scale(24))
	everything := filter{anything, anywhere, ""}
	for i, m := range past {
		opts := storage.ListOptions{Consistency: strong, Limit: 1 + i%4, Revision: m.revision}
		first := s.page(pager, everything, opts)
		got, _ := s.pagesFrom(pager, everything, first, 2)
		s.equalLists(fmt.Sprintf("the listing at revision %d", m.revision), got, resourcesOf(m.state.records()))
		if first.Continue != "" && i > 0 {
			opts.Continue, opts.Revision = first.Continue, past[i-1].revision
			_, err := pager.ListPage(s.ctx, everything.typ, everything.tenancy, everything.prefix, opts)
			s.wantError("the token of another revision", err, storage.ErrInvalid)
		}
	}
	newest := newestRevision(s, h)
	for _, revision := range []int64{-1, newest + futureOffset} {
		want := storage.ErrInvalid
		if revision > 0 {
			want = storage.ErrFutureRevision
		}
		_, err := pager.ListPage(s.ctx, anything, anywhere, "", storage.ListOptions{Revision: revision})
		s.wantError(fmt.Sprintf("ListPage at revision %d", revision), err, want)
	}
}

// historianAnyHandle checks that a listing continues in another handle, after other changes and after the first handle was
// closed.
func historianAnyHandle(s *suite) {
	all := createMany(s, 12)
	page := s.page(s.pager(), homeThings, storage.ListOptions{Consistency: strong, Limit: 3})
	changeAround(s, all)
	other := s.another()
	pager, _ := storage.As[storage.Pager](other)
	first := s.b
	s.b = other
	for i, res := range all { // delete and create resources that the listing has not reached
		if i%4 == 3 && i > 3 {
			s.delete(res)
			s.create(res.Id.Name)
		}
	}
	got, _ := s.pagesFrom(pager, homeThings, page, 4)
	s.equalLists("pages in another handle", got, all)
	s.noError("Close", first.Close())
	got, _ = s.pagesFrom(pager, homeThings, page, 2)
	s.equalLists("pages in another handle, after the first one was closed", got, all)
}
