package conformance

import (
	"strconv"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var keyCases = topic{"Keys", []testCase{
	{name: "NeverMeet", run: keysNeverMeet},
	{name: "EveryPart", run: keysEveryPart},
	{name: "Longest", run: keysLongest},
	{name: "ByteOrder", run: keysByteOrder},
}}

// oddParts are key parts that some database, driver or escaping treats specially.
var oddParts = []string{
	"a", "A", "aa", "a/a", "a//a", "/a", "a/", "/", "a.a", "..", ".", "a%2Fa", "a%2fa", "%", "%%", "a%", "_", "a_", "a#a", "#", "a?b=c&d", "a\\a", `\`, `\\`,
	"a b", " a", "a ", " ", "a\ta", "a\na", "\r\n", "a'a", `a"a`, "`", "''", ";", "--", "/*", "a*", "*a", "**", "(a|b)", "[a]", "{a}", "$1", "$a", "@", "a:b", "::",
	"a,b", "a=b", "~", "^", "\x01", "\x02a", "\x1f", "\x7f", "\u0080", "\u00ff", "é", "e\u0301", "É", "ß", "ẞ", "ss", "İ", "i", "ı", "ﬁ", "fi", "Ａ", "\u200b", "\u202e", "\ufeff", "\ufffd",
	"\uffff", "𐀀", "😀", "👨‍👩‍👧", "\U0010ffff", "日本語", "null", "NULL", "true", "0", "00", "-1", "1e3", "ns", "wildcard", "\\x00", "%00", "\\0", "&amp;",
}

// keysNeverMeet stores names that some software considers equal, and pairs whose joined parts are equal.
func keysNeverMeet(s *suite) {
	var ids []*resourcepb.ID
	for _, name := range oddParts {
		ids = append(ids, newID("g", "K", "p", "n", name))
	}
	for _, sep := range []string{"/", "#", ":", "|", ".", "\x01", "\x1f", "%", "-", " ", "\\"} {
		ids = append(ids,
			newID("g", "K", "p", "n"+sep+"x", "y"),
			newID("g", "K", "p", "n", "x"+sep+"y"),
			newID("g", "K", "p"+sep+"n", "x", "y"),
			newID("g", "K"+sep+"p", "n", "x", "y"),
			newID("g"+sep+"K", "p", "n", "x", "y"))
	}
	ids = append(ids, newID("g", "K", "", "", "x"), newID("g", "K", "x", "", "x"), newID("g", "K", "", "x", "x"), newID("gK", "x", "", "", "x"))

	w := s.watchAll()
	all := make([]*resourcepb.Resource, len(ids))
	var events []*resourcepb.WatchEvent
	for i, id := range ids {
		res := newResource(id)
		res.Data = payload(strconv.Itoa(i))
		all[i] = s.write(res)
		events = append(events, upsertEvent(all[i]))
	}
	for _, res := range all {
		s.checkStored(res)
	}
	everything := newFilter("*", "*", "*", "*", "")
	s.equalLists("List of all keys", s.list(anything, anywhere, ""), everything.selectFrom(all))
	for _, prefix := range []string{"a", "a/", "%", "_", "*", `\`, " ", "\x01", "é", "e", "😀", "\U0010ffff", "\uffff"} {
		f := newFilter("g", "K", "p", "n", prefix)
		s.equalLists("List of "+f.String(), s.list(f.typ, f.tenancy, f.prefix), f.selectFrom(all))
	}

	// The deletion of every second resource leaves exactly the others.
	var left []*resourcepb.Resource
	for i, res := range all {
		if i%2 == 0 {
			s.delete(res)
			events = append(events, deleteEvent(res))
		} else {
			left = append(left, res)
		}
	}
	s.equalLists("List of the remaining resources", s.list(anything, anywhere, ""), everything.selectFrom(left))
	expectPerKey(s, w, events...)
}

// keysEveryPart puts each odd text in each part of a key, also in owners.
func keysEveryPart(s *suite) {
	var all []*resourcepb.Resource
	for i, part := range oddParts {
		var id *resourcepb.ID
		switch i % 5 {
		case 0:
			id = newID(part, "K", "p", "n", "x")
		case 1:
			id = newID("g", part, "p", "n", "x")
		case 2:
			id = newID("g", "K", part, "n", "x")
		case 3:
			id = newID("g", "K", "p", part, "x")
		default:
			id = newID("g", "K", "p", "n", part)
		}
		res := newResource(id)
		if len(all) > 0 {
			res.Owner = clone(all[len(all)-1].Id)
		}
		all = append(all, s.write(res))
	}
	for i, res := range all {
		s.checkStored(res)
		f := filter{storage.UnversionedTypeFrom(res.Id.Type), res.Id.Tenancy, res.Id.Name}
		s.equalLists("List of "+f.String(), s.list(f.typ, f.tenancy, f.prefix), f.selectFrom(all))
		var children []*resourcepb.ID
		if i+1 < len(all) {
			children = append(children, all[i+1].Id)
		}
		s.checkOwned(res.Id, children...)
	}
}

// keysLongest fills every part to the limit, with characters of one byte and of several bytes, and with keys that differ in the
// last byte.
func keysLongest(s *suite) {
	fill := func(unit, last string) string { return strings.Repeat(unit, (255-len(last))/len(unit)) + last }
	var all []*resourcepb.Resource
	for _, unit := range []string{"x", "é", "😀", "\U0010ffff", `\`, "\x01"} {
		for _, last := range []string{"", "a", "b"} {
			// The keys or uids differ only in their last byte: an adapter that truncates them, or hashes them badly, confuses them.
			part := fill(unit, "")
			res := newResource(newID(part, part, part, part, fill(unit, last)))
			res.Id.Uid = fill(unit, last)
			if len(all) > 0 {
				res.Owner = clone(all[len(all)-1].Id)
			}
			all = append(all, s.write(res))
		}
	}
	everything := newFilter("*", "*", "*", "*", "")
	s.equalLists("List of the longest keys", s.list(anything, anywhere, ""), everything.selectFrom(all))
	for i, res := range all {
		s.checkStored(res)
		if i > 0 {
			s.checkOwned(all[i-1].Id, res.Id)
		}
		f := filter{storage.UnversionedTypeFrom(res.Id.Type), res.Id.Tenancy, res.Id.Name}
		s.equalLists("List of the longest name as a prefix", s.list(f.typ, f.tenancy, f.prefix), f.selectFrom(all))
	}
	for _, res := range all {
		s.delete(res)
	}
	s.equalLists("List after all were deleted", s.list(anything, anywhere, ""), nil)
}

// keysByteOrder demands byte order, not the order of a locale, of UTF-16, or of joined text.
func keysByteOrder(s *suite) {
	var all []*resourcepb.Resource
	for _, name := range []string{"b", "B", "a", "Z", "_", "-", "é", "e", "f", "ä", "z", "10", "9", "ｚ", "😀", "\uffff", "\ue000", "a-b", "ab", "a b", "a"} {
		all = append(all, newResource(newID("g", "K", "p", "n", name)))
	}
	for _, namespace := range []string{"n", "n!", "n\x01", "n-", "n0", "N"} {
		for _, name := range []string{"a", "z"} {
			all = append(all, newResource(newID("g", "K", "p", namespace, name+"'")))
		}
	}
	all = append(all, newResource(newID("g", "K!", "p", "n", "a")), newResource(newID("g\x01", "A", "p", "n", "a")), newResource(newID("G", "K", "p", "n", "a")))
	stored := make(map[string]*resourcepb.Resource)
	for _, res := range all {
		if stored[keyOf(res.Id)] == nil {
			stored[keyOf(res.Id)] = s.write(res)
		}
	}
	all = all[:0]
	for _, res := range stored {
		all = append(all, res)
	}
	inOrder(all)
	s.equalLists("List", s.list(anything, anywhere, ""), all)
	s.equalLists("the snapshot of a watch", s.snapshot(s.watch(anything, anywhere, "")), all)
	if pager, ok := storage.As[storage.Pager](s.b); ok {
		got, _ := s.pages(pager, newFilter("*", "*", "*", "*", ""), 4)
		s.equalLists("pages", got, all)
	}
}
