package migrate

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Phase is the progress of a migration.
type Phase string

// The phases, in order.
const (
	// Preparing closes the target for all writers but the tool.
	Preparing Phase = "prepare"
	// Copying writes the source's resources to the target.
	Copying Phase = "copy"
	// Following applies the source's changes to the target as they happen.
	Following Phase = "follow"
	// Cutover: the source is closed for writing, and the target gets the remaining changes.
	Cutover Phase = "cutover"
	// Opening: the target has the contents of the source and is being opened for all writers. The migration cannot be aborted any
	// more.
	Opening Phase = "open"
	// Complete: the target is the store now.
	Complete Phase = "complete"

	// phaseAborted: the migration was aborted. The note stays, so that a repeated abort finds the source to open.
	phaseAborted Phase = "aborted"
	// phaseComplete: a copy is complete. The note stays, because a process that was suspended before it started a migration knows
	// the target by the revision of its note, and an absent note would have the same revision twice.
	phaseComplete Phase = "over"
)

// Counts counts the changes of the target.
type Counts struct {
	// Creations and Replacements are the numbers of written resources, Bytes is their size.
	Creations, Replacements, Bytes int64
	// Unchanged is the number of resources that existed already, equal.
	Unchanged int64
	// Deletions is the number of deleted resources, which the source did not have.
	Deletions int64
	// Events is the number of applied events of the source.
	Events int64
}

// Progress is the progress of a migration.
type Progress struct {
	// Phase is the present phase.
	Phase Phase
	// Count is the number of the source's resources that this phase has processed, Total the number of all; 0 if unknown.
	Count, Total int64
	// Work counts the work of this run.
	Work Counts
	// Rate is the number of resources or events per second over the last seconds.
	Rate float64
	// Remaining is the estimated remaining time of the copy; 0 if unknown.
	Remaining time.Duration
	// Lag is the maximum age of the target's state while following: everything older is proven to be applied. It is negative if
	// nothing is proven yet.
	Lag time.Duration
	// Duration is the duration of this run so far.
	Duration time.Duration
	// Warning is the last error since the previous report. The run retries after it.
	Warning error
}

// outcome is the effect of a call.
type outcome int

const (
	nothing outcome = iota
	outcomeCreated
	outcomeReplaced
	outcomeKept // another resource is stored, and stays
)

// stats are the counters of a run.
type stats struct {
	onProgress func(Progress)

	creations, replacements, unchanged, deletions, events, bytes atomic.Int64
	count, total                                                 atomic.Int64

	mu            sync.Mutex
	began         time.Time
	phase         Phase
	startReported bool      // the start was reported
	asOf          time.Time // everything before this time is in the target; zero if nothing is proven
	warning       error
	marks         []mark // for the rate
}

// mark is a count at a moment.
type mark struct {
	at time.Time
	n  int64
}

func newStats(onProgress func(Progress)) *stats {
	now := time.Now()
	return &stats{onProgress: onProgress, began: now, phase: Copying}
}

func (s *stats) countEntry(e *entry) {
	if e != nil {
		s.count.Add(1)
	}
}

// countOutcome counts an outcome for a resource of this size.
func (s *stats) countOutcome(what outcome, size int) {
	switch what {
	case nothing:
		s.unchanged.Add(1)
		return
	case outcomeKept:
		return
	case outcomeCreated:
		s.creations.Add(1)
	case outcomeReplaced:
		s.replacements.Add(1)
	}
	s.bytes.Add(int64(size))
}

func (s *stats) counts() Counts {
	return Counts{
		Creations: s.creations.Load(), Replacements: s.replacements.Load(), Bytes: s.bytes.Load(),
		Unchanged: s.unchanged.Load(), Deletions: s.deletions.Load(), Events: s.events.Load(),
	}
}

// enter starts a phase.
func (s *stats) enter(phase Phase) {
	s.mu.Lock()
	changed := s.phase != phase || !s.startReported
	s.startReported = true
	s.phase = phase
	s.marks = nil
	s.mu.Unlock()
	s.count.Store(0)
	if changed {
		s.now()
	}
}

// listing starts another pass within a phase.
func (s *stats) listing() { s.count.Store(0) }

func (s *stats) countFollowed(asOf time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asOf = asOf
}

func (s *stats) asOfNow() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asOf
}

func (s *stats) warn(err error) {
	s.mu.Lock()
	s.warning = err
	s.mu.Unlock()
}

// now calls Progress.
func (s *stats) now() {
	if s.onProgress == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	p := Progress{
		Phase: s.phase, Count: s.count.Load(), Total: s.total.Load(), Work: s.counts(),
		Duration: now.Sub(s.began), Warning: s.warning,
	}
	s.warning = nil
	moved := p.Count
	if p.Phase == Following {
		moved = p.Work.Events
		p.Lag = -1
		if !s.asOf.IsZero() {
			p.Lag = age(s.asOf)
		}
	}
	const window = 10
	s.marks = append(s.marks, mark{now, moved})
	if len(s.marks) > window {
		s.marks = s.marks[1:]
	}
	if first := s.marks[0]; now.After(first.at) && moved > first.n {
		p.Rate = float64(moved-first.n) / now.Sub(first.at).Seconds()
	}
	if p.Phase != Following && p.Rate > 0 && p.Total > p.Count {
		p.Remaining = time.Duration(float64(p.Total-p.Count) / p.Rate * float64(time.Second))
	}
	s.onProgress(p)
}

// report calls Progress every second until stopped, and then once more.
func (s *stats) report(ctx context.Context) (stop func()) {
	if s.onProgress == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	over := make(chan struct{})
	go func() {
		defer close(over)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				s.now()
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-over
		s.now()
	}
}

// age returns the time since a moment, by the monotonic clock or by the wall clock, whichever is larger: the former stops while the
// machine sleeps.
func age(at time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0)))
}
