package conformance

import (
	"fmt"

	"github.com/ashlar-dev/storage/resourcepb"
)

// createMany creates n resources named name-000 and so on.
func createMany(s *suite, n int) []*resourcepb.Resource {
	s.Helper()
	var all []*resourcepb.Resource
	for i := range n {
		all = append(all, s.create(fmt.Sprintf("name-%03d", i)))
	}
	return all
}

// changeAround updates, deletes and creates resources at positions before and after any position of a listing.
func changeAround(s *suite, all []*resourcepb.Resource) {
	s.Helper()
	for i, res := range all {
		switch i % 4 {
		case 0:
			s.update(res)
		case 1:
			s.delete(res)
		case 2:
			s.create(res.Id.Name + "-new")
		}
	}
	s.create("a-new")
	s.create("z-new")
}

// mixture returns ids of several types and tenancies with parts that are easily confused: with a pattern, with the beginning of
// another part, with another split of the same text.
func mixture() (ids []*resourcepb.ID) {
	for _, k := range [][5]string{
		{"g", "K", "p", "n", "a"}, {"g", "K", "p", "n", "ab"}, {"g", "K", "p", "n", "a%"}, {"g", "K", "p", "n", "a*"}, {"g", "K", "p", "n", "a_c"},
		{"g", "K", "p", "n", "abc"}, {"g", "K", "p", "n", "A"}, {"g", "K", "p", "n", "é"}, {"g", "K", "p", "n", "z"}, {"g", "K", "p", "n2", "a"},
		{"g", "K", "p", "", "a"}, {"g", "K", "", "n", "a"}, {"g", "K", "", "", "a"}, {"g", "K", "", "", "ab"}, {"g", "K", "p2", "n", "a"},
		{"g", "K", "P", "n", "a"}, {"g", "K", "pn", "", "a"}, {"g", "K2", "p", "n", "a"}, {"g", "Kp", "", "n", "a"}, {"g", "k", "p", "n", "a"},
		{"g2", "K", "p", "n", "a"}, {"g.io", "K", "p", "n", "ab"}, {"G", "K", "p", "n", "a"}, {"gK", "p", "n", "a", "a"},
	} {
		ids = append(ids, newID(k[0], k[1], k[2], k[3], k[4]))
	}
	return ids
}

// filters returns filters of every kind.
func filters() (all []filter) {
	for _, f := range [][5]string{
		{"g", "K", "p", "n", ""}, {"g", "K", "p", "n", "a"}, {"g", "K", "p", "n", "ab"}, {"g", "K", "p", "n", "abc"}, {"g", "K", "p", "n", "abcd"},
		{"g", "K", "p", "n", "a%"}, {"g", "K", "p", "n", "a*"}, {"g", "K", "p", "n", "a_"}, {"g", "K", "p", "n", "*"}, {"g", "K", "p", "n", "%"},
		{"g", "K", "p", "n", "\xc3\xa9"}, {"g", "K", "p", "*", ""}, {"g", "K", "*", "n", ""}, {"g", "K", "*", "*", ""}, {"g", "K", "*", "*", "ab"},
		{"g", "K", "*", "n", "a"}, {"g", "K", "p", "", ""}, {"g", "K", "", "n", ""}, {"g", "K", "", "", ""}, {"g", "K", "", "*", "a"},
		{"g", "K", "*", "", ""}, {"g", "*", "p", "n", ""}, {"g", "*", "p", "n", "a"}, {"g", "*", "*", "*", ""}, {"g", "*", "", "", ""},
		{"*", "*", "p", "n", ""}, {"*", "*", "p", "n", "ab"}, {"*", "*", "p", "*", "a"}, {"*", "*", "", "*", ""}, {"*", "*", "*", "", ""},
		{"*", "*", "*", "*", ""}, {"*", "*", "*", "*", "ab"}, {"g", "Unknown", "*", "*", ""}, {"unknown", "K", "*", "*", ""}, {"unknown", "*", "*", "*", ""},
		{"g", "K", "p", "unknown", ""},
	} {
		all = append(all, newFilter(f[0], f[1], f[2], f[3], f[4]))
	}
	return all
}

// createLarge creates resources that are together too large for one page or one response of a database.
func createLarge(s *suite) (all []*resourcepb.Resource) {
	s.Helper()
	for i := range 12 {
		res := newThing(fmt.Sprintf("heavy-%02d", i))
		res.Data.Value = randomBytes(s.h.MaxSize / 2)
		all = append(all, s.write(res))
	}
	return all
}

// changeTheEnd updates some of the last resources, deletes others, recreates some of these, and creates a resource after them.
func changeTheEnd(s *suite, all []*resourcepb.Resource) []*resourcepb.WatchEvent {
	s.Helper()
	a, b, c := all[len(all)-3], all[len(all)-2], all[len(all)-1]
	s.delete(a)
	s.delete(b)
	return []*resourcepb.WatchEvent{
		deleteEvent(a), deleteEvent(b), upsertEvent(s.create(b.Id.Name)), upsertEvent(s.update(c)), upsertEvent(s.create("the-last")),
	}
}
