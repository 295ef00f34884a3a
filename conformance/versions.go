package conformance

import (
	"strconv"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var versionCases = topic{"Versions", []testCase{
	{name: "Garbage", run: versionGarbage},
	{name: "NeverUsedTwiceAfterRestart", needs: needAnother, run: versionRestart},
	{name: "NeverUsedTwiceAfterRestore", needs: needBackup, run: versionRestore},
}}

// garbage returns texts that are not the version of stored, some of them nearly equal to it.
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
		res := withNewData(stored)
		res.Version = v
		_, err := s.b.WriteCAS(s.ctx, res)
		s.wantError("WriteCAS at version "+strconv.Quote(v), err, storage.ErrCASFailure)
		s.wantError("DeleteCAS at version "+strconv.Quote(v), s.b.DeleteCAS(s.ctx, stored.Id, v), storage.ErrCASFailure)

		absent.Version = v
		_, err = s.b.WriteCAS(s.ctx, absent)
		s.wantError("WriteCAS of nothing at version "+strconv.Quote(v), err, storage.ErrCASFailure)
		s.noError("DeleteCAS of nothing at version "+strconv.Quote(v), s.b.DeleteCAS(s.ctx, absent.Id, v))
	}
	s.checkStored(stored)
	s.checkAbsent(absent.Id)
}

// versionLog records versions and ends the case if one is reused.
type versionLog struct {
	s            *suite
	writeNumbers map[string]int
}

func (l *versionLog) add(res *resourcepb.Resource) *resourcepb.Resource {
	l.s.Helper()
	if earlier, again := l.writeNumbers[res.Version]; again {
		l.s.Fatalf("write %d got the version of write %d: %q", len(l.writeNumbers), earlier, res.Version)
	}
	l.writeNumbers[res.Version] = len(l.writeNumbers)
	return res
}

func versionRestart(s *suite) {
	log := versionLog{s, make(map[string]int)}
	kept := log.add(s.create("kept"))
	for range 4 {
		gone := log.add(s.create("gone"))
		kept = log.add(s.update(kept))
		s.delete(gone)
		s.closeBackend(s.b)
		s.b = s.another()
	}
	s.checkStored(kept)
}

func versionRestore(s *suite) {
	log := versionLog{s, make(map[string]int)}
	kept := log.add(s.create("kept"))
	restore := s.h.Backup(s.TB, s.b)
	lost := kept
	for range 5 {
		lost = log.add(s.update(lost))
	}
	gone := log.add(s.create("gone"))

	s.b = restore()
	s.closeAtEnd(s.b)
	s.checkStored(kept)
	s.checkAbsent(gone.Id)
	_, err := s.b.WriteCAS(s.ctx, withNewData(lost))
	s.wantError("WriteCAS at a version that the restore took away", err, storage.ErrCASFailure)
	for range 5 {
		kept = log.add(s.update(kept))
	}
	_, err = s.b.WriteCAS(s.ctx, withNewData(lost))
	s.wantError("WriteCAS at a version that the restore took away", err, storage.ErrCASFailure)
	log.add(s.write(newThing("gone")))
}
