package lease

import (
	"sync"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
)

// leaseStates holds the state of the leases of a tenancy as observed by a keeper.
type leaseStates struct {
	mu         sync.Mutex
	leases     map[string]*leaseState // by name
	extensions map[string]int         // number of extensions of a lease under way
	orphans    map[leaseName]*orphan
	changeCh   chan struct{} // closed and replaced when one of the above changes
}

func newLeaseStates() *leaseStates {
	return &leaseStates{
		leases: map[string]*leaseState{}, extensions: map[string]int{}, orphans: map[leaseName]*orphan{}, changeCh: make(chan struct{}),
	}
}

// extend prevents the end of a lease until release is called.
func (s *leaseStates) extend(name string) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extensions[name]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.extensions[name]--; s.extensions[name] > 0 {
			return
		}
		delete(s.extensions, name)
		if seen := s.leases[name]; seen != nil && seen.lease != nil && time.Since(seen.since) >= seen.lease.TTL {
			s.announce() // the lease became due meanwhile
		}
	}
}

// remaining returns the time until a lease with this time to live is due.
func (s *leaseStates) remaining(name string, ttl time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.leases[name]
	if seen == nil || seen.since.IsZero() {
		return ttl
	}
	return max(0, ttl-time.Since(seen.since))
}

// leaseName identifies a lease. Another lease of the same name has another uid.
type leaseName struct{ name, uid string }

// orphan is a lease that has lost its record without a regular end: the record was deleted or replaced by another program.
type orphan struct {
	since  time.Time
	ending bool // a sweep is under way
}

// orphanDelay is how long a renewal must be observed without its lease before the lease counts as deleted. Some databases report the two
// separately.
const orphanDelay = time.Second

// leaseState is the observed state of one lease.
type leaseState struct {
	lease      *Lease // nil if the record was not observed or cannot be read
	uid        string // uid of the stored record, "" for none
	renewal    string // version of the stored renewal, "" for none
	renewedUid string // uid of the lease that the renewal names
	since      time.Time
	ending     bool // this keeper is ending it
	refusals   int  // of attempts to end it since the watch has returned a change
}

// expiring is a lease that is due: it was not renewed for its time to live, has begun to end, or has lost its record.
type expiring struct {
	leaseName
	lease   *Lease // nil if the record was deleted
	renewal string
}

// announce wakes the waiters for a change. The caller holds the lock.
func (s *leaseStates) announce() {
	close(s.changeCh)
	s.changeCh = make(chan struct{})
}

// hasExtension reports whether a lease must not be ended at the moment.
func (s *leaseStates) hasExtension(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.extensions[name] > 0
}

// observeWrite records a written lease or renewal. It ignores other kinds.
func (s *leaseStates) observeWrite(res *resourcepb.Resource) {
	if kind := res.GetId().GetType().GetKind(); kind != leaseType.Kind && kind != renewalType.Kind {
		return
	}
	name := res.GetId().GetName()
	seen := s.leases[name]
	if seen == nil {
		seen = &leaseState{}
		s.leases[name] = seen
	}
	switch res.GetId().GetType().GetKind() {
	case leaseType.Kind:
		if seen.lease == nil && seen.renewal == "" {
			seen.since = time.Now() // its renewal follows, unless it was deleted
		}
		// A record that does not decode leaves the lease nil: its time to live is unknown, so the lease does not expire.
		s.observeReplacement(name, seen, res.GetId().GetUid())
		seen.lease, _ = leaseOf(res)
		seen.refusals = 0
	case renewalType.Kind:
		if seen.renewal != res.GetVersion() {
			seen.renewal, seen.renewedUid, seen.since, seen.refusals = res.GetVersion(), renewedUid(res), time.Now(), 0
		}
	}
}

// observeDeletion records the deletion of a lease or a renewal. The two are independent: on some databases the renewal of a new lease is observed
// before the end of the previous lease of that name.
func (s *leaseStates) observeDeletion(kind, name string) {
	seen := s.leases[name]
	switch {
	case seen == nil:
		return
	case kind == leaseType.Kind:
		s.observeReplacement(name, seen, "")
		seen.lease = nil
	case kind == renewalType.Kind && seen.renewal != "":
		seen.renewal, seen.since = "", time.Now()
	}
	if seen.uid == "" && seen.renewal == "" {
		delete(s.leases, name)
	}
}

// observeReplacement records the uid of the stored record of a lease, "" for none.
func (s *leaseStates) observeReplacement(name string, seen *leaseState, uid string) {
	if seen.uid != "" && seen.uid != uid && (seen.lease == nil || !seen.lease.hasEnded) {
		s.noteOrphans(leaseName{name, seen.uid})
	}
	seen.uid = uid
}

// hasSeen reports whether the keeper's watch has returned a version of a lease's record. It also returns the channel that is closed at the next
// change.
func (s *leaseStates) hasSeen(name, version string) (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.leases[name]
	return seen != nil && seen.lease != nil && seen.lease.res.GetVersion() == version, s.changeCh
}

// due returns the leases to end and marks them as ending. It also returns the time until the next lease may be due.
func (s *leaseStates) due(now time.Time) (all []expiring, next time.Duration, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = time.Hour
	for name, seen := range s.leases {
		switch {
		case seen.uid == "":
			s.noteOrphans(leaseName{name, seen.renewedUid}) // only a renewal is stored
		case seen.lease == nil || seen.ending:
		case seen.lease.hasEnded:
			seen.ending = true
			all = append(all, expiring{leaseName{name, seen.uid}, seen.lease, ""})
		default:
			remaining := seen.since.Add(seen.lease.TTL).Sub(now)
			if remaining > 0 {
				next = min(next, remaining)
				continue
			}
			if s.extensions[name] > 0 {
				continue // a renewal is under way; its end announces a change
			}
			seen.ending = true
			all = append(all, expiring{leaseName{name, seen.uid}, seen.lease, seen.renewal})
		}
	}
	return s.dueOrphans(now, all, next)
}

// dueOrphans appends the orphans that are older than orphanDelay.
func (s *leaseStates) dueOrphans(now time.Time, all []expiring, next time.Duration) ([]expiring, time.Duration, <-chan struct{}) {
	for l, o := range s.orphans {
		switch remaining := o.since.Add(orphanDelay).Sub(now); {
		case o.ending:
		case remaining > 0:
			next = min(next, remaining)
		default:
			o.ending = true
			all = append(all, expiring{leaseName: l})
		}
	}
	return all, next, s.changeCh
}

// noteOrphans records that a lease without a record may have attached resources.
func (s *leaseStates) noteOrphans(l leaseName) {
	if s.orphans[l] == nil {
		s.orphans[l] = &orphan{since: time.Now()}
	}
}

// retryEnding makes a lease that did not end due again.
func (s *leaseStates) retryEnding(d expiring, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch seen := s.leases[d.name]; {
	case d.lease == nil:
		s.finishSweep(d.leaseName, err)
	case seen != nil:
		seen.ending = false
	}
	s.announce()
}

// maxRefusals is the number of refused attempts to end a lease after which a keeper reads its records. They are a tenth of a second apart, so a watch
// that is only late has usually returned the change by then.
const maxRefusals = 10

// noteRefusal counts a refused attempt to end a lease. It reports whether the watch may never return the stored records.
func (s *leaseStates) noteRefusal(d expiring) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.leases[d.name]
	if seen == nil || seen.lease == nil || seen.lease != d.lease {
		return false
	}
	seen.refusals++
	return seen.refusals >= maxRefusals
}

// observeRead records the records of a lease that a read has returned, unless the watch has returned a change since the lease was due. renewal is
// nil for none.
func (s *leaseStates) observeRead(d expiring, l *Lease, renewal *resourcepb.Resource) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.leases[d.name]
	if seen == nil || seen.lease != d.lease || seen.uid != l.res.GetId().GetUid() {
		return
	}
	seen.refusals = 0
	if l.res.GetVersion() != seen.lease.res.GetVersion() {
		l.hasEnded = false // the record is written again at the end, so that the watch returns it
		seen.lease = l
	}
	if renewal.GetVersion() != seen.renewal {
		seen.renewal, seen.renewedUid, seen.since = renewal.GetVersion(), renewedUid(renewal), time.Now()
	}
}

// finishSweep records the result of a sweep.
func (s *leaseStates) finishSweep(l leaseName, err error) {
	if err == nil {
		delete(s.orphans, l)
	} else if o := s.orphans[l]; o != nil {
		o.since, o.ending = time.Now(), false
	}
}

// uid returns the observed uid of the lease of a name, or "".
func (s *leaseStates) uid(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen := s.leases[name]; seen != nil {
		return seen.uid
	}
	return ""
}
