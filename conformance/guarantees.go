package conformance

import (
	"slices"
	"strings"
)

// Guarantee is a promise of the contract and the tests that check it.
type Guarantee struct {
	// Text is the promise.
	Text string
	// Cases are the cases of this suite, as topic/case.
	Cases []string
	// Checks are the checks of package faults.
	Checks []string
	// Model are the checks of the topic Histories.
	Model []string
}

// BrokenBy reports whether the failure of one of the guarantee's cases breaks it. A history that fails names its check.
func (g *Guarantee) BrokenBy(r Result) bool {
	if check, ok := failedCheck(r); ok {
		return slices.Contains(g.Model, check)
	}
	return r.Failure != "" && slices.Contains(g.Cases, r.Case)
}

// failedCheck returns the check that made a history fail.
func failedCheck(r Result) (check string, ok bool) {
	if !strings.HasPrefix(r.Case, "Histories/") || !strings.HasPrefix(r.Failure, "[") {
		return "", false
	}
	check, _, ok = strings.Cut(r.Failure[1:], "] ")
	return check, ok
}

// Guarantees returns the promises of the contract. Every case of this suite and every check of package faults belongs to
// exactly one, except the cases of the topic Histories, which check many.
func Guarantees() []Guarantee {
	return []Guarantee{
		{
			"A write happens only at the stored version; the first row of the decision table that applies decides, the uid before the version",
			[]string{"Histories/Calls"}, nil, []string{"decision tables"},
		}, {
			"A write that is refused changes nothing",
			[]string{"Histories/Calls", "Load/BadCallsHarmNoNeighbours"}, []string{"refused changes do not happen"}, []string{"refused changes do not happen"},
		}, {
			"An acknowledged write is seen by every handle, and stays: when handles close, and when the database crashes",
			[]string{"Histories/Calls"}, []string{"acknowledged changes stay"}, []string{"acknowledged changes stay"},
		}, {
			"Calls take effect one after the other, each between its beginning and its end; no update is lost",
			[]string{"Load/Clients", "Load/Faults"}, []string{"strictly serializable", "linearizable (porcupine)"}, nil,
		}, {
			"Strong reads, lists, pages, scans and snapshots agree with the order of changes across keys that watches show",
			nil, []string{"one order for everything strong"}, nil,
		}, {
			"A version of any shape is legal input; no version is used twice for a key",
			[]string{"Histories/Calls", "Versions/Garbage", "Versions/NeverUsedTwiceAfterRestart"}, []string{"versions"}, []string{"versions"},
		}, {
			"No version is used again after the restore of an older backup",
			[]string{"Versions/NeverUsedTwiceAfterRestore"}, nil, nil,
		}, {
			"Any characters in keys, lists in byte order",
			[]string{"Histories/Calls", "Keys/NeverMeet", "Keys/EveryPart", "Keys/ByteOrder", "Keys/Longest"}, []string{"order of lists"}, []string{"order of lists"},
		}, {
			"The group version is no part of the key; a read under another group version reports the mismatch",
			[]string{"Histories/Calls"}, nil, []string{"group versions"},
		}, {
			"Wildcards for tenancy units, the kind, and group and kind together; a name prefix is literal",
			[]string{"Histories/Calls"}, nil, []string{"filters"},
		}, {
			"Strong reads and lists show every acknowledged write, and only written resources",
			[]string{"Histories/Calls"}, []string{"reads show written states"}, []string{"reads show written states"},
		}, {
			"In a store with history, the changes of a commit share a revision, revisions rise in the order of commits and are never used again, and the newest is not older than any acknowledged change",
			[]string{"Histories/Past"}, []string{"revisions rise"}, []string{"revisions rise", "a commit has one revision", "swaps compare revisions"},
		}, {
			"The store is read as it was at a revision, in spans of the order of bytes, whole or in pages that any handle can continue",
			[]string{"Histories/Past", "Historian/ScanBytes", "Historian/Spans", "Historian/BadInput", "Processes/Pages", "Processes/Revisions"}, []string{"the past stays"}, []string{"the past stays"},
		}, {
			"The changes after a revision result in the state at a later one: a follower reports every change once, with the previous state, and commits as a whole",
			[]string{"Histories/Past", "Histories/Watches", "Historian/PartOfACommit"}, []string{
				"followers report every change once", "followers report the previous state", "commits are followed as a whole",
			}, []string{
				"followers report every change once", "followers report the previous state", "commits are followed as a whole",
				"watches report the previous state",
			},
		}, {
			"A compaction never goes back; reading compacted history is an error, and nothing is skipped",
			[]string{"Historian/Compact", "Historian/CompactBesideReaders"}, []string{"compactions stay"}, nil,
		}, {
			"A list, and all pages of one, are a single cut through the store",
			[]string{"Histories/Calls", "Lists/Large"}, nil, []string{"lists are one cut"},
		}, {
			"Eventual reads never go back, and are never older than an event that the handle has delivered",
			[]string{"Histories/Watches"}, []string{"eventual reads do not go back", "eventual reads show written states"}, []string{"eventual reads do not go back", "eventual reads show written states", "eventual reads catch up"},
		}, {
			"A watch shows a snapshot taken during the call, its end, then every change, without a gap or a repeat",
			[]string{"Histories/Watches", "Snapshot/Large"}, nil, []string{"snapshots of watches"},
		}, {
			"For each key: every version, in order, exactly once",
			[]string{"Histories/Watches", "Watchers/AfterSilence"}, []string{"watches are complete and ordered"}, []string{"watches are complete and ordered"},
		}, {
			"Events of different keys come in the order of their commits",
			[]string{"Histories/Watches"}, []string{"one order of changes"}, []string{"one order of changes"},
		}, {
			"A delete event carries the last stored resource",
			[]string{"Histories/Watches"}, nil, []string{"deletions show the last resource"},
		}, {
			"A slow watch delays no other caller, and its memory is bounded",
			[]string{"Watchers/Slow", "Watchers/Many", "Watchers/CursorBesideNext"}, []string{"memory is bounded", "goroutines are bounded"}, nil,
		}, {
			"A watch makes progress however short the deadlines of Next are",
			[]string{"Deadlines/ImpatientNext", "Deadlines/ImpatientNextAfterCursor"}, nil, nil,
		}, {
			"After an outage of the database, writes and watches continue without intervention",
			nil, []string{"writes go on", "watches go on", "watches resume", "followers go on"}, nil,
		}, {
			"Calls end with their contexts, and a write that may have been sent says so",
			[]string{"Deadlines/OverBeforeTheCall", "Deadlines/CancelledDuringWrites", "Deadlines/CancelledDuringReads"}, []string{"deadlines"}, nil,
		}, {
			"The outcome of a write is unknown only while the database is out of reach",
			nil, []string{"outcomes are known"}, nil,
		}, {
			"Of several errors that apply, ErrClosed comes first, then ErrInvalid and ErrTooLarge, then the context's",
			[]string{"Deadlines/OrderOfErrors"}, []string{"errors"}, nil,
		}, {
			"Nothing found is a nil slice",
			[]string{"Histories/Calls"}, nil, []string{"empty results are nil"},
		}, {
			"Closing ends watches at once, and nothing is left running",
			[]string{
				"Closing/Watch", "Closing/WatchWhileWaiting", "Closing/CancelledNext", "Closing/Backend", "Closing/BackendEndsWatches",
				"Closing/BackendWhileBusy", "Closing/OtherHandleStays", "Leaks/Goroutines",
			}, []string{"nothing is left after Close"}, nil,
		}, {
			"Every event has a cursor of its own, also inside a transaction; a watch from it misses and repeats nothing",
			[]string{"Histories/Watches", "Cursors/MovesWhileQuiet"}, []string{"cursors are exact", "history stays until it is compacted"}, []string{"cursors are exact"},
		}, {
			"Cursors work with any filter and any handle; cursors of other stores are refused",
			[]string{"Histories/Watches", "Cursors/AnotherStore", "Cursors/Garbage"}, nil, nil,
		}, {
			"A watch with bookmarks returns its bookmark after everything acknowledged before the request, from history and snapshots too",
			[]string{
				"Histories/Watches", "Bookmarks/History", "Bookmarks/SlowWatch", "Bookmarks/Requests", "Bookmarks/Closed",
			}, []string{"bookmarks are true", "bookmarks come"}, []string{"bookmarks are true"},
		}, {
			"Bookmarks come without any change, and where the filter matches nothing; there are no more of them than requests",
			[]string{"Histories/Watches"}, []string{"bookmarks"}, []string{"bookmarks", "bookmarks come"},
		}, {
			"An event with `more` is followed by another event of its commit; an event without it is the last of its commit for the filter, also across pages of history and from a cursor inside a transaction",
			[]string{"Histories/Watches", "Bounds/AcrossPages"}, []string{"transactions in watches"}, []string{"transactions in watches"},
		}, {
			"Cursors, bookmarks and commit bounds are offered by all watches of a backend, or by none",
			[]string{"Histories/Watches", "Cursors/NoHalfCapability", "Bookmarks/NoHalfCapability"}, nil, nil,
		}, {
			"Pages hold every unchanged resource exactly once",
			[]string{"Histories/Calls", "Paging/AnotherStore", "Paging/ForgedTokens", "Paging/Garbage", "Paging/Large"}, []string{"pages"}, []string{"pages", "tokens belong to a filter"},
		}, {
			"A transaction happens as a whole or not at all; the lowest failing operation is named",
			[]string{"Histories/Calls", "Commit/Conflicts", "Commit/Malformed", "Commit/MaxOps", "Commit/TooLarge"}, []string{"transactions are atomic"}, []string{"transactions are atomic"},
		}, {
			"Owner references follow every change, and are complete after the event of the owner's deletion",
			[]string{"Histories/Calls", "Histories/Watches"}, []string{"owner references are true"}, []string{"owner references are true"},
		}, {
			"Arguments are not kept, results are the caller's",
			[]string{
				"Aliasing/InputIsNotKept", "Aliasing/InputIsNotChanged", "Aliasing/ResultsAreTheCallers", "Aliasing/EventsAreTheCallers",
			}, nil, nil,
		}, {
			"1 MiB is legal, one byte more is not; errors name the invalid input",
			[]string{
				"Limits/LargestResource", "Limits/BadIDs", "Limits/BadResources", "Limits/BadFilters", "Limits/BadConsistency",
			}, nil, nil,
		}, {
			"An error about a store's URL names the parameter, and never the password",
			[]string{"URL/Bad", "URL/MaxSize", "URL/OutlivesContext", "URL/ContextOver"}, nil, nil,
		}, {
			"Unknown types and fields, and times to live, pass through unchanged",
			[]string{"Histories/Calls", "Payload/UnknownType", "Payload/UnknownFields", "Payload/Empty"}, []string{"content"}, []string{"content"},
		}, {
			"A resource that was damaged in the database is an error that names its key; other keys are not affected, and it can be written anew or deleted",
			[]string{"Damage/Garbage", "Damage/Forms"}, nil, nil,
		}, {
			"A store that was fenced for a move refuses every write through every handle; notes and loads of the tool that moves it keep their rules",
			[]string{
				"Mover/Notes", "Mover/NoteLimits", "Mover/NotesAndFenceAreHidden", "Mover/FenceRefusesWrites", "Mover/FenceOpens",
				"Mover/FenceUnderLoad", "Mover/Epochs", "Mover/Guards", "Mover/GuardsUnderLoad", "Mover/FenceAdmits", "Mover/FenceAdmitsUnderLoad", "Mover/Moved", "Mover/GuardedLoads", "Mover/Columns", "Mover/BulkReads", "Mover/LoadContent",
				"Mover/LoadAllOrNothing", "Mover/LoadWatched",
			}, nil, nil,
		},
	}
}
