package conformance

import (
	"strconv"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var pagingCases = topic{"Paging", []testCase{
	{name: "Garbage", needs: needPager, run: pagingGarbage},
	{name: "AnotherStore", needs: needPager, run: pagingAnotherStore},
	{name: "ForgedTokens", needs: needPager, run: pagingForged},
	{name: "Large", needs: needPager, run: pagingLarge},
}}

// pagingGarbage lists with invalid tokens and limits.
func pagingGarbage(s *suite) {
	pager, all := s.pager(), createMany(s, 9)
	t := s.page(pager, homeThings, storage.ListOptions{Consistency: strong, Limit: 2}).Continue
	if t == "" {
		s.Fatal("the first of several pages has no continue token")
	}
	for _, token := range []string{"garbage", " ", "%", "\x00", "💥", t + "x", "x" + t, t[:len(t)/2], all[0].Version, strings.Repeat("A", 5000)} {
		_, err := pager.ListPage(s.ctx, things, home, "", storage.ListOptions{Consistency: strong, Limit: 2, Continue: token})
		s.wantError("ListPage with token "+strconv.Quote(token), err, storage.ErrInvalid)
	}
	for _, limit := range []int{-1, -1 << 40} {
		_, err := pager.ListPage(s.ctx, things, home, "", storage.ListOptions{Limit: limit})
		s.wantError("ListPage with a negative limit", err, storage.ErrInvalid)
	}
}

// pagingAnotherStore continues a listing with a token of another store that has the same keys.
func pagingAnotherStore(s *suite) {
	createMany(s, 3)
	opts := storage.ListOptions{Consistency: strong, Limit: 1}
	opts.Continue = s.page(s.pager(), homeThings, opts).Continue
	s.open()
	createMany(s, 3)
	_, err := s.pager().ListPage(s.ctx, things, home, "", opts)
	s.wantError("ListPage with the token of another store", err, storage.ErrCompacted)
}

// pagingLarge lists resources so large that no page should hold all of them, whatever its limit.
func pagingLarge(s *suite) {
	pager := s.pager()
	var all []*resourcepb.Resource
	for i := range 5 {
		res := newThing(strconv.Itoa(i))
		res.Data.Value = randomBytes(s.h.MaxSize / 2)
		all = append(all, s.write(res))
	}
	got, _ := s.pages(pager, homeThings, 1000)
	s.equalLists("pages of large resources", got, all)
}
