package conformance

import (
	"strconv"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var versionCases = topic{"Versions", []testCase{
	{name: "Garbage", run: versionGarbage},
	{name: "NeverUsedTwice", run: versionNeverTwice},
	{name: "NeverUsedTwiceAfterRestart", needs: needAnother, run: versionRestart},
	{name: "NeverUsedTwiceAfterRestore", needs: needBackup, run: versionRestore},
	{name: "SameContentIsAWrite", run: versionSameContent},
}}

// garbage returns texts that are no version of stored, some of them nearly so.
func garbage(stored, other *resourcepb.Resource) []string {
	v := stored.Version
	texts := []string{
		"0", "1", "-1", "+1", "1.5", "1e3", "18446744073709551616", strconv.Itoa(int(^uint(0) >> 1)), "NaN", "null", "true", "*", "%", "'", "''", `"`,
		" ", "\n", "\t", "\x00", "\\", "💥", "ﷺ", "../..", "{}", "[]", "0x10", "AAAA", "AAAA==", "00000000-0000-0000-0000-000000000000",
		"'; DROP TABLE resources; --", strings.Repeat("9", 40), strings.Repeat("v", 10_000),
		other.Version, v + "0", "0" + v, v + " ", " " + v, v + "\n", v + "\x00", v + "=", "+" + v, v + v, v + "." + v, v[:len(v)-1],
	}
	for _, changedCase := range []string{strings.ToUpper(v), strings.ToLower(v)} {
		if changedCase != v {
			texts = append(texts, changedCase)
		}
	}
	kept := texts[:0]
	for _, t := range texts {
		if t != "" && t != v {
			kept = append(kept, t)
		}
	}
	return kept
}

func versionGarbage(s *suite) {
	stored, other := s.update(s.create("a")), s.update(s.create("b"))
	absent := newThing("absent")
	for _, v := range garbage(stored, other) {
		res := changed(stored)
		res.Version = v
		_, err := s.b.WriteCAS(s.ctx, res)
		s.fails("WriteCAS at version "+strconv.Quote(v), err, storage.ErrCASFailure)
		s.fails("DeleteCAS at version "+strconv.Quote(v), s.b.DeleteCAS(s.ctx, stored.Id, v), storage.ErrCASFailure)

		absent.Version = v
		_, err = s.b.WriteCAS(s.ctx, absent)
		s.fails("WriteCAS of nothing at version "+strconv.Quote(v), err, storage.ErrCASFailure)
		s.succeeds("DeleteCAS of nothing at version "+strconv.Quote(v), s.b.DeleteCAS(s.ctx, absent.Id, v))
	}
	s.stored(stored)
	s.absent(absent.Id)
}

// versionLog notes versions and ends the case when one comes again.
type versionLog struct {
	s    *suite
	seen map[string]int
}

func (l *versionLog) note(res *resourcepb.Resource) *resourcepb.Resource {
	l.s.Helper()
	if earlier, again := l.seen[res.Version]; again {
		l.s.Fatalf("write %d got the version of write %d: %q", len(l.seen), earlier, res.Version)
	}
	l.seen[res.Version] = len(l.seen)
	return res
}

func versionNeverTwice(s *suite) {
	log := versionLog{s, make(map[string]int)}
	for range 8 {
		res := log.note(s.create("a"))
		for range 3 {
			res = log.note(s.update(res))
		}
		s.delete(res)
	}
	// Nor does the same uid help.
	res := newThing("a")
	for range 4 {
		stored := log.note(s.write(res))
		s.delete(stored)
	}
}

func versionRestart(s *suite) {
	log := versionLog{s, make(map[string]int)}
	kept := log.note(s.create("kept"))
	for range 4 {
		gone := log.note(s.create("gone"))
		kept = log.note(s.update(kept))
		s.delete(gone)
		s.closeBackend(s.b)
		s.b = s.another()
	}
	s.stored(kept)
}

func versionRestore(s *suite) {
	log := versionLog{s, make(map[string]int)}
	kept := log.note(s.create("kept"))
	restore := s.h.Backup(s.TB, s.b)
	lost := kept
	for range 5 {
		lost = log.note(s.update(lost))
	}
	gone := log.note(s.create("gone"))

	s.b = restore()
	s.closeLater(s.b)
	s.stored(kept)
	s.absent(gone.Id)
	_, err := s.b.WriteCAS(s.ctx, changed(lost))
	s.fails("WriteCAS at a version that the restore took away", err, storage.ErrCASFailure)
	for range 5 {
		kept = log.note(s.update(kept))
	}
	_, err = s.b.WriteCAS(s.ctx, changed(lost))
	s.fails("WriteCAS at a version that the restore took away", err, storage.ErrCASFailure)
	log.note(s.write(newThing("gone")))
}

func versionSameContent(s *suite) {
	w := s.watchAll()
	first := s.create("a")
	second := s.write(first)
	if second.Version == first.Version {
		s.Fatalf("writing the same content again kept version %q", first.Version)
	}
	s.upsert(w, first)
	s.upsert(w, second)
	_, err := s.b.WriteCAS(s.ctx, first)
	s.fails("WriteCAS at the version before", err, storage.ErrCASFailure)
}
