package conformance

// Guarantee is a promise of the contract and the tests that check it.
type Guarantee struct {
	// Text is the promise.
	Text string
	// Cases of this suite, as topic/case.
	Cases []string
	// Checks of package faults.
	Checks []string
}

// Guarantees returns the promises of the contract. Every case of this suite and every check of package faults belongs to
// exactly one.
func Guarantees() []Guarantee {
	return []Guarantee{
		{
			"A write happens only at the stored version; the first row of the decision table that applies decides, the uid before the version",
			[]string{"Write/Table", "Write/ResultIsWhatIsStored", "Write/OtherKeysUntouched", "Delete/Table", "Delete/Repeated", "Delete/CreateAgain", "Histories/Model"}, nil,
		}, {
			"A write that is refused changes nothing",
			[]string{"Write/FailedWriteChangesNothing", "Load/BadCallsHarmNoNeighbours"}, []string{"refused changes do not happen"},
		}, {
			"An acknowledged write is seen by every handle, and stays: when handles close, and when the database crashes",
			[]string{"Write/SecondHandle", "Write/Durable"}, []string{"acknowledged changes stay"},
		}, {
			"Calls take effect one after the other, each between its beginning and its end; no update is lost",
			[]string{

				"Load/OneHandle", "Load/SeveralHandles",
			},
			[]string{"strictly serializable", "linearizable (porcupine)"},
		}, {
			"A version of any shape is legal input; no version is used twice for a key",
			[]string{"Versions/Garbage", "Versions/NeverUsedTwice", "Versions/NeverUsedTwiceAfterRestart", "Versions/SameContentIsAWrite"}, []string{"versions"},
		}, {
			"No version is used again after the restore of an older backup",
			[]string{"Versions/NeverUsedTwiceAfterRestore"}, nil,
		}, {
			"Any characters in keys, lists in byte order",
			[]string{"Keys/NeverMeet", "Keys/EveryPart", "Keys/ByteOrder", "Keys/Longest"}, []string{"order of lists"},
		}, {
			"The group version is no part of the key; a read under another one says so",
			[]string{"GroupVersion/NotPartOfTheKey", "GroupVersion/ReplacedByWrite", "GroupVersion/IgnoredByDelete", "GroupVersion/IgnoredByLists", "Read/Table"}, nil,
		}, {
			"Wildcards for tenancy units, the kind, and group and kind together; a name prefix is literal",
			[]string{"List/Filters"}, nil,
		}, {
			"Strong reads and lists show every acknowledged write, and only written resources",
			[]string{"Read/Strong", "List/FollowsChanges"}, []string{"reads show written states"},
		}, {
			"In a store with history, revisions rise in the order of commits and are never used again, and the newest is not older than any acknowledged change",
			[]string{"Historian/Empty", "Historian/Swap", "Historian/Restart"}, []string{"revisions rise"},
		}, {
			"The store is read as it was at a revision, in spans of the order of bytes, whole or in pages that any handle goes on with",
			[]string{
				"Historian/ScanAtEveryRevision", "Historian/ScanOptions", "Historian/ScanBytes", "Historian/Spans", "Historian/PagesAtARevision",
				"Historian/PagesInAnyHandle", "Historian/BadInput",
			},
			[]string{"the past stays"},
		}, {
			"The changes after a revision result in the state at a later one: a follower reports every change once, with the previous state, and commits as a whole",
			[]string{"Historian/Follow", "Historian/FollowSpan", "Historian/Recall"},
			[]string{"followers report every change once", "followers report the previous state", "commits are followed as a whole"},
		}, {
			"A compaction never goes back; reading compacted history is an error, and nothing is skipped",
			[]string{"Historian/Compact", "Historian/CompactBesideReaders"}, []string{"compactions stay"},
		}, {
			"A list, and all pages of one, are a single cut through the store",
			[]string{"List/IsOneCut", "Paging/OneCut"}, nil,
		}, {
			"Eventual reads never go back, and are never older than an event that the handle has delivered",
			[]string{
				"Consistency/NeverOlderThanEvents",
				"Consistency/NeverOlderThanEventsOfSecondHandle", "Read/EventualCatchesUp",
			},
			[]string{"eventual reads do not go back", "eventual reads show written states"},
		}, {
			"A watch shows a snapshot taken during the call, its end, then every change, without a gap or a repeat",
			[]string{
				"Snapshot/TakenBeforeReturn", "Snapshot/Empty", "Snapshot/ShowsWhatWasAcknowledged", "Snapshot/ReadSlowly", "Snapshot/Large",
				"Snapshot/OutlivesContext",
			}, nil,
		}, {
			"For each key: every version, in order, exactly once",
			[]string{"Order/Lifetimes", "Order/SecondHandle", "Order/Filters"}, []string{"watches are complete and ordered"},
		}, {
			"Events of different keys come in the order of their commits",
			[]string{"Order/AcrossKeys"}, []string{"one order of changes"},
		}, {
			"A delete event carries the last stored resource",
			[]string{"Order/DeleteCarriesTheLast"}, nil,
		}, {
			"A slow watch delays no other caller, and its memory is bounded",
			[]string{"Watchers/Slow", "Watchers/Many", "Watchers/CursorBesideNext"}, []string{"memory is bounded", "goroutines are bounded"},
		}, {
			"A watch makes progress however short the deadlines of Next are",
			[]string{"Deadlines/ImpatientNext", "Deadlines/ImpatientNextAfterCursor"}, nil,
		}, {
			"After an outage of the database, writes and watches continue without intervention",
			nil, []string{"writes go on", "watches go on", "watches resume", "followers go on"},
		}, {
			"Calls end with their contexts, and a write that may have been sent says so",
			[]string{"Deadlines/OverBeforeTheCall", "Deadlines/CancelledDuringWrites", "Deadlines/CancelledDuringReads"}, []string{"deadlines"},
		}, {
			"The outcome of a write is unknown only while the database is out of reach",
			nil, []string{"outcomes are known"},
		}, {
			"Of several errors that apply, ErrClosed comes first, then ErrInvalid and ErrTooLarge, then the context's",
			[]string{"Deadlines/OrderOfErrors"}, []string{"errors"},
		}, {
			"Nothing found is a nil slice",
			[]string{"List/Empty", "Owners/None"}, nil,
		}, {
			"Closing ends watches at once, and nothing is left running",
			[]string{
				"Closing/Watch", "Closing/WatchWhileWaiting", "Closing/CancelledNext", "Closing/Backend", "Closing/BackendEndsWatches",
				"Closing/BackendWhileBusy", "Closing/OtherHandleStays", "Leaks/Goroutines",
			},
			[]string{"nothing is left after Close"},
		}, {
			"Every event has a cursor of its own, also inside a transaction; a watch from it misses and repeats nothing",
			[]string{
				"Cursors/EachEventItsOwn", "Cursors/EachEventOfATransaction", "Cursors/EndOfSnapshot", "Cursors/InsideSnapshot", "Cursors/AfterRestart",
				"Cursors/MovesWhileQuiet",
			},
			[]string{"cursors are exact", "history stays until it is compacted"},
		}, {
			"Cursors go with any filter and any handle; those of other stores are refused",
			[]string{"Cursors/AnyFilter", "Cursors/AnotherHandle", "Cursors/AnotherStore", "Cursors/Garbage"}, nil,
		}, {
			"A watch with bookmarks returns its bookmark after everything acknowledged before the request, from history and snapshots too",
			[]string{
				"Bookmarks/AfterWhatWasAcknowledged", "Bookmarks/RequestsAtTheSameTime", "Bookmarks/History", "Bookmarks/Snapshot", "Bookmarks/SlowWatch",
				"Bookmarks/Cursor", "Bookmarks/Closed",
			},
			[]string{"bookmarks are true", "bookmarks come"},
		}, {
			"Bookmarks come without any change, and where the filter matches nothing; there are no more of them than requests",
			[]string{"Bookmarks/WithoutChanges", "Bookmarks/QuietFilter", "Bookmarks/NoMoreThanRequests"}, []string{"bookmarks"},
		}, {
			"An event with `more` is followed by another event of its commit; an event without it is the last of its commit for the filter, also across pages of history and from a cursor inside a transaction",
			[]string{"Bounds/Transactions", "Bounds/FromEveryCursor", "Bounds/AcrossPages"}, []string{"transactions in watches"},
		}, {
			"Cursors, bookmarks and commit bounds are offered by all watches of a backend, or by none",
			[]string{"Cursors/NoHalfCapability", "Bookmarks/NoHalfCapability", "Bounds/NoHalfCapability"}, nil,
		}, {
			"Pages hold every unchanged resource exactly once",
			[]string{"Paging/UnchangedExactlyOnce", "Paging/Limits", "Paging/Token", "Paging/Large", "Paging/Cursor"}, []string{"pages"},
		}, {
			"A transaction happens as a whole or not at all; the lowest failing operation is named",
			[]string{
				"Commit/AllOrNothing", "Commit/LowestIndex", "Commit/Nothing", "Commit/ResultsLineUp", "Commit/Table", "Commit/Malformed", "Commit/MaxOps",
				"Commit/TooLarge", "Commit/Owners",
			},
			[]string{"transactions are atomic"},
		}, {
			"Owner references follow every change, and are complete after the event of the owner's deletion",
			[]string{"Owners/FollowChanges", "Owners/CompleteAfterDeleteEvent", "Owners/KeyAndUid", "Owners/KeyOrder", "Owners/OwnerRecreated"},
			[]string{"owner references are true"},
		}, {
			"Arguments are not kept, results are the caller's",
			[]string{"Aliasing/InputIsNotKept", "Aliasing/InputIsNotChanged", "Aliasing/ResultsAreTheCallers", "Aliasing/EventsAreTheCallers"}, nil,
		}, {
			"1 MiB is legal, one byte more is not; errors name the invalid input",
			[]string{"Limits/LargestResource", "Limits/BadIDs", "Limits/BadResources", "Limits/BadFilters", "Limits/BadConsistency"}, nil,
		}, {
			"An error about a store's URL names the parameter, and never the password",
			[]string{"URL/Bad", "URL/MaxSize", "URL/OutlivesContext", "URL/ContextOver"}, nil,
		}, {
			"Unknown types and fields pass through unchanged",
			[]string{"Payload/UnknownType", "Payload/UnknownFields", "Payload/Empty"}, []string{"content"},
		}, {
			"A resource that was damaged in the database is an error that names its key; other keys are not affected, and it can be written anew or deleted",
			[]string{"Damage/Garbage", "Damage/Empty", "Damage/Truncated", "Damage/OtherResource", "Damage/NoUid"}, nil,
		}, {
			"A store that was fenced for a move refuses every write through every handle; notes and loads of the tool that moves it keep their rules",
			[]string{
				"Mover/Notes", "Mover/NoteLimits", "Mover/NotesAndFenceAreHidden", "Mover/FenceRefusesWrites", "Mover/FenceOpens", "Mover/FenceUnderLoad",
				"Mover/Epochs", "Mover/Guards", "Mover/GuardedLoads", "Mover/BulkReads", "Mover/LoadContent", "Mover/LoadAllOrNothing", "Mover/LoadWatched",
			}, nil,
		},
	}
}
