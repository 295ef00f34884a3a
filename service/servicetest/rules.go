package servicetest

// rules are the promises of the resource service that the suite is there for. Their numbers begin with 1.
var rules = []string{
	"Each method refuses what it has to refuse, with the code and the text that clients know.",
	"Requests are not changed, and answers belong to the caller.",
	"Who may not learns nothing of what exists.",
	"A write is completed, validated and authorized, in this order; one that is refused leaves no trace.",
	"The uid and the owner of a resource never change.",
	"The generation changes with each Write and with no WriteStatus.",
	"No acknowledged status is lost beside statuses of other keys.",
	"No acknowledged Write is lost beside WriteStatus, nor the other way round.",
	"A uid of the past creates nothing.",
	"A resource moves from one group version to the next, and out of the sight of those who watch the old one, once.",
	"Another version than the stored one deletes nothing.",
	"A deletion that failed leaves no tombstone, and the owner keeps its children.",
	"Names of the largest size make no difference, to tombstones either.",
	"What a deleted resource owned is deleted, level by level; an owner that was created again keeps what is its own.",
	"A resource that is marked for deletion takes statuses and fewer finalizers, and goes with the last of them.",
	"What the hooks of a type refuse today can still be deleted.",
	"Clients write no tombstones.",
	"A stream has a snapshot, one end of it, and then every version of each key in order.",
	"What an event shows, a read shows at once.",
	"Lists and streams show what the caller may see, and authenticate it once for each tenancy.",
	"Payloads and fields that nobody knows survive.",
	"A store that was restored ends streams, with Aborted.",
	"A call that is over says whether it was cancelled or too late, and leaves nothing behind.",
	"Concurrent writes that name no version succeed or are Aborted.",
}
