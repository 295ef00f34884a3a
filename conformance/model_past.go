package conformance

import (
	"slices"
	"strings"

	"github.com/ashlar-dev/storage/history"
)

// A modelPoint is a revision and the number of changes up to it.
type modelPoint struct {
	revision int64
	changes  int
}

// isInRange reports whether a key lies in a range, in the order of bytes.
func isInRange(span history.Range, key string) bool {
	return (span.From == nil || key >= keyOf(span.From)) && (span.To == nil || key < keyOf(span.To))
}

// scan returns the records of a range after a number of changes, in key order.
func (m *modelStore) scan(span history.Range, changes int) (records []history.Record) {
	for key, r := range m.at(changes) {
		if isInRange(span, key) {
			records = append(records, *r)
		}
	}
	slices.SortFunc(records, func(a, b history.Record) int { return strings.Compare(keyOf(a.Resource.Id), keyOf(b.Resource.Id)) })
	return records
}

// checkScan compares a part of a scan with the records that the rest of its range has.
func checkScan(scan history.ScanResult, opts history.ScanOptions, want []history.Record) (rest []history.Record) {
	const check = "the past stays"
	n := len(scan.Records)
	switch {
	case opts.Revision != 0 && scan.Revision != opts.Revision:
		failCheck(check, "a scan at revision %d reports revision %d", opts.Revision, scan.Revision)
	case opts.Limit > 0 && n > opts.Limit, n > len(want), n == 0 && len(want) > 0, scan.More != (n < len(want)), opts.Count && scan.Count != int64(len(want)):
		failCheck(check, "a scan at revision %d with limit %d returned %d of the remaining %d records, count %d, more %v", opts.Revision, opts.Limit, n, len(want), scan.Count, scan.More)
	}
	for i, r := range scan.Records {
		w := want[i]
		if res := r.Resource; opts.KeysOnly && keyOf(res.GetId()) == keyOf(w.Resource.Id) && res.GetVersion() == w.Resource.Version {
			if res.Data != nil || res.Owner != nil || len(res.Metadata)+len(res.Status) > 0 {
				failCheck(check, "a scan of keys at revision %d returned %s", opts.Revision, shortText(res))
			}
			r.Resource = w.Resource
		}
		if err := compareRecords(r, w); err != nil {
			failCheck(check, "record %d of a scan at revision %d: %v", i, opts.Revision, err)
		}
	}
	return want[n:]
}

// A modelFollower is a follower and the changes that it must still return: all in its range from next on.
type modelFollower struct {
	history.Follower
	handle   *modelHandle
	keyRange history.Range
	next     int
	revision int64
}

// accept compares an answer of Next with the changes.
func (f *modelFollower) accept(changes []history.Change, revision int64) {
	if revision < f.revision {
		failCheck("revisions rise", "a follower went back from revision %d to %d", f.revision, revision)
	}
	f.revision = revision
	for len(changes) > 0 {
		commit := f.nextCommit()
		if len(commit) == 0 {
			failCheck("followers report every change once", "a follower returned a change of revision %d, but no commit is left", changes[0].Revision)
		}
		if len(commit) > len(changes) {
			failCheck("commits are followed as a whole", "a follower returned only %d of %d changes of a commit, the first of revision %d", len(changes), len(commit), changes[0].Revision)
		}
		for i, got := range changes[:len(commit)] {
			j := slices.IndexFunc(commit, func(c modelChange) bool { return c.key == changeKey(got) })
			if j < 0 {
				failCheck("followers report every change once", "revision %d: the change of %q is not in the next commit, or was returned before", got.Revision, changeKey(got))
			}
			if got.More != (i < len(commit)-1) {
				failCheck("commits are followed as a whole", "change %d of %d of a commit, of revision %d: more is %v", i, len(commit), got.Revision, got.More)
			}
			checkChange(got, commit[j])
			if got.Revision != changes[0].Revision {
				failCheck("a commit has one revision", "changes of one commit have the revisions %d and %d", changes[0].Revision, got.Revision)
			}
			if got.Revision > revision {
				failCheck("revisions rise", "a change of revision %d came with those up to %d", got.Revision, revision)
			}
			commit[j].key = "" // matched: another change of this key is an error
		}
		changes = changes[len(commit):]
	}
}

// nextCommit takes the changes of the next commit that has some in the range.
func (f *modelFollower) nextCommit() (commit []modelChange) {
	all := f.handle.store.changes
	for ; f.next < len(all) && (len(commit) == 0 || all[f.next].commit == commit[0].commit); f.next++ {
		if isInRange(f.keyRange, all[f.next].key) {
			commit = append(commit, all[f.next])
		}
	}
	return commit
}

func changeKey(c history.Change) string {
	switch {
	case c.New != nil:
		return keyOf(c.New.Resource.Id)
	case c.Old != nil:
		return keyOf(c.Old.Resource.Id)
	}
	failCheck("followers report the previous state", "the change of revision %d has neither New nor Old", c.Revision)
	return ""
}

func checkChange(got history.Change, want modelChange) {
	if got.Revision <= want.after || got.Revision > want.upTo {
		failCheck("revisions rise", "a change between the revisions %d and %d has %d", want.after, want.upTo, got.Revision)
	}
	for _, c := range []struct {
		check     string
		got, want *history.Record
	}{{"followers report every change once", got.New, want.now}, {"followers report the previous state", got.Old, want.before}} {
		if (c.got == nil) != (c.want == nil) {
			failCheck(c.check, "the change of %q at revision %d: got %v, want %v", want.key, got.Revision, c.got, c.want)
		}
		if c.got != nil {
			if err := compareRecords(*c.got, *c.want); err != nil {
				failCheck(c.check, "the change of %q at revision %d: %v", want.key, got.Revision, err)
			}
		}
	}
}
