package migrate

import "time"

// Into decides about existing resources in the target.
type Into int

const (
	// Empty requires an empty target.
	Empty Into = iota
	// Merge keeps existing resources. A key with different contents on both sides is ErrConflict, found before anything is written.
	Merge
	// Overwrite keeps existing resources but replaces those that differ.
	Overwrite
	// Mirror replaces resources that differ and deletes those that the source does not have.
	Mirror
)

// prunes reports whether resources that the source does not have may be deleted from the target.
func (i Into) prunes() bool { return i == Empty || i == Mirror }

// Options configure a migration. Nil and zero values are the defaults.
type Options struct {
	// From and To are display names of the stores: for errors, the journal, and the error of writers to the source after cutover,
	// which also contains the beginning of the target's identity. They must not contain a password; Name makes such names from
	// URLs.
	From, To string
	// Into decides about existing resources in the target. After the start of a migration, Merge may become Overwrite; Merge and
	// Overwrite are refused if the migration was started to make the target equal.
	Into Into

	// Live follows the source's changes after the copy until a cutover, so that programs can continue to write to the source.
	// Without it the source should not change during the copy; if it does, the comparison at the end fails.
	Live bool
	// Cutover starts the cutover of a live migration when it is closed or a value is received from it.
	Cutover <-chan struct{}
	// CutoverLag starts the cutover of a live migration as soon as the target is proven to be less than this behind. The proof
	// takes a round trip to the source, or, if its watches are no storage.Bookmarker, a comparison of both sides.
	CutoverLag time.Duration

	// Rate limits the changes of the target per second; 0 is no limit.
	Rate float64
	// Parallel is the number of concurrent writers to the target. The default is 32.
	Parallel int
	// PageSize is the number of resources in a page of a listing. The default is 500.
	PageSize int
	// Batch is the maximum number of resources that are created together. The default depends on the target; 1 creates them one by
	// one.
	Batch int
	// Timeout is how long a database may fail to answer before the migration fails. The default is a minute. Completed work is
	// kept.
	Timeout time.Duration

	// Count lists the source once more at the start, so that Progress contains the total.
	Count bool
	// Progress is called about once a second and when the phase changes, never concurrently.
	Progress func(Progress)

	// takeover is how long to wait for heartbeats of another process, and lease how long a heartbeat allows writes.
	takeover, lease time.Duration
}

// Next is the way to continue after a call of Run.
type Next string

const (
	// Nothing means that the migration is complete, or was never started. With an error, the caller has to decide.
	Nothing Next = ""
	// Retry means that the same call continues, once the cause of the error is gone.
	Retry Next = "again"
	// AbortFirst means that the same call would fail again, so call Abort first.
	AbortFirst Next = "give up"
	// Stop means that another process has taken over, or aborted, the migration.
	Stop Next = "leave"
)

// Result describes the outcome of a call of Run.
type Result struct {
	// Phase is the phase that the migration has reached.
	Phase Phase
	// HasJournal reports that the target's journal contains the migration, so it can be continued, whatever ended this call.
	HasJournal bool
	// Next is the way to continue after an error.
	Next Next
	// SourceClosed reports that this call has closed the source for writing, or may have, and has not opened it again.
	SourceClosed bool
	// IsResumed reports that the call continued the migration of an earlier run.
	IsResumed bool
	// WasComplete reports that the migration had been completed before, and nothing was done.
	WasComplete bool
	// Work counts the work of this run.
	Work Counts
	// Report is the comparison at the end, if there was one.
	Report *Report
	// CopyTime is the duration of the copy in this run, without the comparison at the end.
	CopyTime time.Duration
	// Duration is the duration of this run.
	Duration time.Duration
	// FenceTime is how long the source was closed before the target was complete.
	FenceTime time.Duration
}

// defaultTarget is the default display name of a target.
const defaultTarget = "the target"
