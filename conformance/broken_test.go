package conformance

import (
	"regexp"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
)

// A defect is a backend with one bug, with the case that must find it and the failure of that case.
type defect struct {
	bug  string
	by   string // topic/case
	says string // a regular expression
}

var defects = []defect{
	{bug: "check, then act", by: "Load/Clients", says: "strictly serializable|acknowledged changes stay"},
	{bug: "dropped event", by: "Load/Clients", says: "watches are complete and ordered|cursors are exact|watches go on"},
	{bug: "dropped event", by: "Histories/Watches", says: "watches are complete and ordered|bookmarks are true"},
	{bug: "repeated event", by: "Histories/Watches", says: "watches are complete and ordered|transactions in watches"},
	{bug: "repeated event", by: "Load/Clients", says: "watches are complete and ordered|cursors are exact"},
	{bug: "events overtake", by: "Histories/Watches", says: "watches are complete and ordered|one order of changes"},
	{bug: "versions count from one", by: "Histories/Calls", says: "versions"},
	{bug: "the version before the uid", by: "Histories/Calls", says: "want.* has another uid"},
	{bug: "writes compare the group version", by: "Histories/Calls", says: "decision tables|transactions are atomic"},
	{bug: "half a transaction", by: "Histories/Calls", says: "transactions are atomic"},
	{bug: "the highest index", by: "Histories/Calls", says: "transactions are atomic"},
	{bug: "input kept", by: "Aliasing/InputIsNotKept", says: "Read"},
	{bug: "events share a resource", by: "Aliasing/EventsAreTheCallers", says: "the second watch"},
	{bug: "key parts joined by a slash", by: "Keys/NeverMeet", says: "another uid"},
	{bug: "sorted by locale", by: "Keys/ByteOrder", says: "List"},
	{bug: "pages skip one", by: "Histories/Calls", says: "lists are one cut"},
	{bug: "a token goes with any filter", by: "Histories/Calls", says: "tokens belong to a filter"},
	{bug: "owners by key only", by: "Histories/Calls", says: "owner references are true"},
	{bug: "snapshot after the position", by: "Load/Clients", says: "cursors are exact"},
	{bug: "snapshot before the position", by: "Load/Clients", says: "cursors are exact"},
	{bug: "no end of an empty snapshot", by: "Histories/Watches", says: "snapshots of watches|bookmarks are true"},
	{bug: "a watch ends with its context", by: "Histories/Watches", says: "watch closed"},
	{bug: "a cursor one too early", by: "Histories/Watches", says: "cursors are exact|a bookmark has cursor|already passed"},
	{bug: "one cursor for a transaction", by: "Histories/Watches", says: "cursors are exact"},
	{bug: "a cursor inside a snapshot", by: "Histories/Watches", says: "inside a snapshot"},
	{bug: "another store's cursor", by: "Cursors/AnotherStore", says: "another store's cursor"},
	{bug: "a closed watch goes on", by: "Closing/Watch", says: "of a watch closed"},
	{bug: "a cancelled Next consumes", by: "Closing/CancelledNext", says: "Next"},
	{bug: "watches outlive their backend", by: "Closing/BackendEndsWatches", says: "still waiting"},
	{bug: "Next begins anew", by: "Deadlines/ImpatientNext", says: "no event within"},
	{bug: "Next begins anew", by: "Deadlines/ImpatientNextAfterCursor", says: "no event within"},
	{bug: "slow watches end", by: "Watchers/Slow", says: "watch closed"},
	{bug: "a delete shows the id only", by: "Histories/Watches", says: "deletions show the last resource"},
	{bug: "keys are cut", by: "Keys/Longest", says: "another uid"},
	{bug: "a second handle is a second store", by: "Histories/Calls", says: "not found|decision tables|transactions are atomic"},
	{bug: "a bookmark comes at once", by: "Histories/Watches", says: "bookmarks (are true|come)"},
	{bug: "bookmarks share the round trip under way", by: "Load/Clients", says: "bookmarks are true"},
	{bug: "no bookmark without changes", by: "Histories/Watches", says: "bookmarks come"},
	{bug: "a bookmark overtakes history", by: "Bookmarks/History", says: "events (came )?before the bookmark"},
	{bug: "a bookmark overtakes history", by: "Bookmarks/SlowWatch", says: "events (came )?before the bookmark"},
	{bug: "a bookmark in a snapshot", by: "Histories/Watches", says: "in the middle of a snapshot"},
	{bug: "bookmarks come twice", by: "Histories/Watches", says: "more bookmarks than requests|answers request"},
	{bug: "bookmarks have no number", by: "Histories/Watches", says: "answers request 0"},
	{bug: "bookmarks have no number", by: "Bookmarks/Requests", says: "answers request 0"},
	{bug: "a bookmark answers later requests", by: "Bookmarks/Requests", says: "came before a change"},
	{bug: "a bookmark names the oldest request", by: "Bookmarks/Requests", says: "no event within"},
	{bug: "failed calls of Bookmark have numbers", by: "Bookmarks/Requests", says: "answers request|came before a change"},
	{bug: "a bookmark has an old cursor", by: "Histories/Watches", says: "a bookmark has cursor"},
	{bug: "closed watches take requests", by: "Bookmarks/Closed", says: "Bookmark of a closed watch"},
	{bug: "watches from cursors have no bookmarks", by: "Bookmarks/NoHalfCapability", says: "a watch of WatchFrom is no storage.Bookmarker"},
	{bug: "more after the last", by: "Histories/Watches", says: "transactions in watches"},
	{bug: "no more", by: "Histories/Watches", says: "transactions in watches"},
	{bug: "more whatever the filter", by: "Histories/Watches", says: "transactions in watches"},
	{bug: "no more after a cursor", by: "Histories/Watches", says: "transactions in watches"},
	{bug: "no more between pages", by: "Bounds/AcrossPages", says: "more is false"},
	{bug: "more between commits", by: "Load/Clients", says: "transactions in watches"},
	{bug: "scans show the present", by: "Histories/Past", says: "the past stays"},
	{bug: "counts end with the page", by: "Histories/Past", says: "the past stays"},
	{bug: "large scans end early", by: "Historian/ScanBytes", says: "records, count 6, more true"},
	{bug: "a span's end is part of it", by: "Historian/Spans", says: "too many"},
	{bug: "the future is the present", by: "Historian/BadInput", says: "a revision to come"},
	{bug: "a swap does not compare", by: "Histories/Past", says: "swaps compare revisions"},
	{bug: "a swap compares with what the handle remembers", by: "Histories/Past", says: "swaps compare revisions"},
	{bug: "a swap compares, then acts", by: "Load/Clients", says: "strictly serializable|acknowledged changes stay|refused changes do not happen"},
	{bug: "a refusal tells nothing", by: "Histories/Past", says: "Swap returned the record"},
	{bug: "swaps tell the revision before", by: "Histories/Past", says: "a swap between the revisions"},
	{bug: "followers begin one too late", by: "Histories/Past", says: "followers report every change once"},
	{bug: "followers begin one too early", by: "Histories/Past", says: "followers report every change once"},
	{bug: "followers begin one too late", by: "Load/Clients", says: "followers report the previous state|followers report every change once"},
	{bug: "followers know no span", by: "Histories/Past", says: "followers report every change once"},
	{bug: "before is one too early", by: "Histories/Past", says: "followers report the previous state"},
	{bug: "deletions have no state before", by: "Histories/Past", says: "neither New nor Old"},
	{bug: "progress is ahead", by: "Load/Clients", says: "revisions rise|followers"},
	{bug: "progress ends inside a commit", by: "Historian/PartOfACommit", says: "came with those up to"},
	{bug: "commits come in parts", by: "Histories/Past", says: "commits are followed as a whole"},
	{bug: "a commit has several revisions", by: "Histories/Past", says: "a commit has one revision"},
	{bug: "recalled events show the present", by: "Histories/Watches", says: "watches report the previous state"},
	{bug: "listings at a revision show the present", by: "Histories/Past", says: "lists are one cut"},
	{bug: "a token goes with its handle", by: "Histories/Past", says: "compacted"},
	{bug: "compacted revisions are read", by: "Historian/Compact", says: "compacted to"},
	{bug: "a compaction goes back", by: "Historian/Compact", says: "the oldest revision is"},
	{bug: "nobody follows from the compacted revision", by: "Historian/Compact", says: "from the compacted revision"},
	{bug: "followers skip what is compacted", by: "Historian/Compact", says: "which is compacted"},
	{bug: "uids are compared without trailing spaces", by: "Histories/Calls", says: "decision tables|show written states|transactions are atomic|owner references are true"},
	{bug: "times are cut to microseconds", by: "Histories/Calls", says: "a write returned"},
	{bug: "metadata lose trailing spaces", by: "Histories/Calls", says: "a write returned"},
	{bug: "a long list is read in two halves", by: "Lists/Large", says: "is no cut"},
	{bug: "the cursor of a listing is too late", by: "Lists/Large", says: "after the listing"},
	{bug: "a token of no listing lists everything", by: "Paging/ForgedTokens", says: "shows (other|a)-"},
	{bug: "a token has its own prefix", by: "Paging/ForgedTokens", says: "shows (other|a)-"},
	{bug: "a token goes with any store", by: "Paging/AnotherStore", says: "another store"},
	{bug: "checks come before the commit", by: "Commit/Conflicts", says: "check a key of the other"},
	{bug: "presence is tested before the commit", by: "Commit/Conflicts", says: "delete a present"},
	{bug: "a resumed watch loses an event after a compaction", by: "Historian/Compact", says: "the watch from a cursor after a compaction|Next"},
	{bug: "an event after silence is lost", by: "Watchers/AfterSilence", says: "since before the silence"},
	{bug: "closing twice is an error", by: "Closing/Backend", says: "twice|again|Close"},
	{bug: "no operations are one result", by: "Histories/Calls", says: "transactions are atomic"},
	{bug: "results are in another order", by: "Histories/Calls", says: "transactions are atomic|a write returned"},
	{bug: "a deletion deletes owned resources", by: "Histories/Calls", says: "."},
	{bug: "a check of an absent key is ignored", by: "Histories/Calls", says: "transactions are atomic"},
	{bug: "a negative limit is the default", by: "Paging/Garbage", says: "a negative limit"},
	{bug: "a page exceeds its limit", by: "Histories/Calls", says: "the limit is"},
	{bug: "watches ignore the prefix", by: "Histories/Watches", says: "."},
	{bug: "a request ends with its context", by: "Histories/Watches", says: "."},
	{bug: "a rewrite counts as a creation", by: "Histories/Past", says: "revisions rise|record"},
	{bug: "scans of keys return resources", by: "Histories/Past", says: "the past stays"},
	{bug: "swaps compare the version", by: "Histories/Past", says: "swaps compare revisions"},
	{bug: "swaps replace another uid", by: "Histories/Past", says: "another uid"},
	{bug: "swaps delete only the same uid", by: "Histories/Past", says: "."},
	{bug: "a goroutine is left", by: "Leaks/Goroutines", says: "unexpected goroutines"},

	{bug: "eventual reads lag", by: "Load/Clients", says: "eventual reads do not go back"},
	{bug: "the second page of a snapshot shows the present", by: "Snapshot/Large", says: "the rest of the snapshot"},
	{bug: "the second page of a snapshot shows the present", by: "Historian/CompactBesideReaders", says: "a snapshot beside a compaction"},
	{bug: "eventual reads lag", by: "Histories/Watches", says: "eventual reads do not go back"},
	{bug: "strong reads lag", by: "Histories/Calls", says: "reads show written states|acknowledged changes stay"},
	{bug: "strong reads lag", by: "Load/Clients", says: "strictly serializable"},
	{bug: "results shared", by: "Aliasing/ResultsAreTheCallers", says: "scribbling"},
	{bug: "input changed", by: "Aliasing/InputIsNotChanged", says: "the argument of WriteCAS"},
	{bug: "kinds have no wildcard", by: "Histories/Calls", says: "filters|eventual reads"},
	{bug: "the prefix is a pattern", by: "Histories/Calls", says: "filters|eventual reads"},
	{bug: "the snapshot waits for Next", by: "Histories/Watches", says: "snapshots of watches"},
	{bug: "garbage versions are invalid", by: "Versions/Garbage", says: "at version"},
	{bug: "a delete of another uid fails", by: "Histories/Calls", says: "decision tables"},
	{bug: "the largest size is too large", by: "Limits/LargestResource", says: "too large"},
	{bug: "one byte too much is fine", by: "Limits/LargestResource", says: "does not name the size|too large"},
	{bug: "unknown fields lost", by: "Payload/UnknownFields", says: "unknown fields"},
	{bug: "times to live lost", by: "Payload/UnknownFields", says: "UnknownFields|unknown fields"},
	{bug: "a mismatch by pointer", by: "Histories/Calls", says: "group versions|eventual reads"},
	{bug: "contexts ignored", by: "Deadlines/OverBeforeTheCall", says: "with a cancelled context"},
	{bug: "the context before the input", by: "Deadlines/OrderOfErrors", says: "with a cancelled context: got error .*canceled"},
	{bug: "the input before the end", by: "Deadlines/OrderOfErrors", says: "after Close.*: got error .*(invalid argument|too large)"},
	{bug: "the context before the end", by: "Deadlines/OrderOfErrors", says: "after Close and with a cancelled context: got error .*canceled"},
	{bug: "lists of nothing are empty", by: "Histories/Calls", says: "empty results are nil"},
	{bug: "references of nothing are empty", by: "Histories/Watches", says: "empty results are nil"},
	{bug: "usable after Close", by: "Closing/Backend", says: "after Close"},
	{bug: "no MaxOps", by: "Commit/MaxOps", says: "MaxOps is 8"},
	{bug: "pages read the present", by: "Histories/Calls", says: "lists are one cut|tokens belong"},
	{bug: "each page has its own cursor", by: "Histories/Calls", says: "has cursor"},
	{bug: "owner references lag", by: "Histories/Watches", says: "owner references are true"},
	{bug: "a cancelled write goes on", by: "Deadlines/CancelledDuringWrites", says: "nothing was sent"},
	{bug: "an empty unit is a wildcard", by: "Histories/Calls", says: "filters"},
	{bug: "writes merge", by: "Histories/Calls", says: "a write returned"},
	{bug: "reads ignore the uid", by: "Histories/Calls", says: "show written states"},
	{bug: "bad ids are not found", by: "Limits/BadIDs", says: "Read with"},
	{bug: "the last operation on a key counts", by: "Commit/Malformed", says: "of one key"},
	{bug: "a deletion ignores that its resource must be present", by: "Histories/Calls", says: "transactions are atomic"},
	{bug: "large transactions in parts", by: "Commit/TooLarge", says: "more than 1 MiB together"},
	{bug: "a list read in two halves", by: "Load/Clients", says: "strictly serializable"},
}

// TestDefects checks that each defect is found by its case.
func TestDefects(t *testing.T) {
	for _, alone := range []bool{true, false} {
		t.Run(map[bool]string{true: "Alone", false: "Parallel"}[alone], func(t *testing.T) {
			for _, d := range defects {
				c := caseNamed(t, d.by)
				if c.exclusive != alone {
					continue
				}
				t.Run(d.bug+", "+d.by, func(t *testing.T) {
					if !alone {
						t.Parallel()
					}
					// Those that take luck get several chances.
					var said string
					for attempt := range 20 {
						failed := false
						if failed, said = d.run(t, c, 2*time.Second); failed && regexp.MustCompile(d.says).MatchString(said) {
							t.Logf("found in attempt %d", attempt+1)
							return
						}
					}
					t.Errorf("not found, or for another reason, which was: %s", said)
				})
			}
		})
	}
}

func caseNamed(t *testing.T, name string) testCase {
	t.Helper()
	for _, topic := range topics {
		for _, c := range topic.cases {
			if topic.name+"/"+c.name == name {
				return c
			}
		}
	}
	t.Fatalf("no case is called %s", name)
	return testCase{}
}

// run runs one case against the defect and returns whether it failed, and its output.
func (d defect) run(t *testing.T, c testCase, patience time.Duration) (failed bool, said string) {
	h, end := harnessOf(d.bug), make(chan struct{})
	defer close(end)
	h.Timeout = patience
	h.Open = func(testing.TB) storage.Backend {
		s := newStore(d.bug)
		s.leak = end
		return s.open()
	}
	if d.bug == "a second handle is a second store" {
		h.Another = func(t testing.TB, _ storage.Backend) storage.Backend { return h.Open(t) }
	}
	h.complete(t)
	r := checkCase(t.Context(), &h, d.by, c)
	return r.Failure != "", r.Failure + r.Log
}

// TestCheckOfReference makes sure that a defect is not found merely because the cases run outside of go test's own runner.
func TestCheckOfReference(t *testing.T) {
	for _, d := range []defect{{by: "Histories/Calls"}, {by: "Histories/Watches"}, {by: "Histories/Past"}, {by: "Paging/Garbage"}, {by: "Leaks/Goroutines"}} {
		if failed, said := d.run(t, caseNamed(t, d.by), time.Minute); failed {
			t.Errorf("%s fails with the reference as it is: %s", d.by, said)
		}
	}
}
