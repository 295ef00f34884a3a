package lease

import (
	"sync"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
)

// leaseStates holds what a keeper has observed of the leases of its tenancy.
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

// leaseName is a lease: another one of the same name has another uid.
type leaseName struct{ name, uid string }

// orphan is what may be left of a lease that did not end, but whose record was deleted or replaced by somebody else than a keeper.
type orphan struct {
	since  time.Time
	ending bool // something here is about to sweep it
}

// orphanDelay is how long a renewal is seen without its lease before that counts as one that was deleted: some databases tell of the two one after
// the other.
const orphanDelay = time.Second

// leaseState is what a keeper has seen of a lease.
type leaseState struct {
	lease      *Lease // nil if its record was not seen, or cannot be read
	uid        string // the lease's uid, "" if none is stored
	renewal    string // the version of the newest renewal, "" if none is stored
	renewedUid string // the uid of the lease that the newest renewal is of
	since      time.Time
	ending     bool // something here is about to end it
}

// expiring is a lease that nobody has renewed for its time to live, or whose end has begun, or whose record was deleted.
type expiring struct {
	leaseName
	lease   *Lease // nil if its record was deleted
	renewal string
}

// announce tells who waits that something has changed. The caller holds the lock.
func (s *leaseStates) announce() {
	close(s.changeCh)
	s.changeCh = make(chan struct{})
}

// hasExtension reports whether a lease is not to be ended at the moment.
func (s *leaseStates) hasExtension(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.extensions[name] > 0
}

// observeWrite takes in a lease or a renewal that was written. What is neither of them is not a keeper's.
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
			seen.since = time.Now() // its renewal comes with it, unless somebody deleted that
		}
		// One that does not decode is left alone: nobody knows for how long it was to live.
		s.observeReplacement(name, seen, res.GetId().GetUid())
		seen.lease, _ = leaseOf(res)
	case renewalType.Kind:
		if seen.renewal != res.GetVersion() {
			seen.renewal, seen.renewedUid, seen.since = res.GetVersion(), renewedUid(res), time.Now()
		}
	}
}

// observeDeletion takes in that a lease or a renewal is not stored any more. Each goes alone: on some databases the renewal of a new lease is seen
// before the end of the old one of that name.
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

// observeReplacement takes in that the stored record of a lease is that of another uid, or "" for none.
func (s *leaseStates) observeReplacement(name string, seen *leaseState, uid string) {
	if seen.uid != "" && seen.uid != uid && (seen.lease == nil || !seen.lease.hasEnded) {
		s.noteOrphans(leaseName{name, seen.uid})
	}
	seen.uid = uid
}

// hasSeen reports whether the keeper's watch hasSeen returned a version of a lease's record; it also returns what is closed when the watch returns more.
func (s *leaseStates) hasSeen(name, version string) (bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.leases[name]
	return seen != nil && seen.lease != nil && seen.lease.res.GetVersion() == version, s.changeCh
}

// due returns the leases to end, marks them as ending, and returns when the next one may be due.
func (s *leaseStates) due(now time.Time) (all []expiring, next time.Duration, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = time.Hour
	for name, seen := range s.leases {
		switch {
		case seen.uid == "":
			s.noteOrphans(leaseName{name, seen.renewedUid}) // there is only a renewal
		case seen.lease == nil || seen.ending:
		case seen.lease.hasEnded:
			seen.ending = true
			all = append(all, expiring{leaseName{name, seen.uid}, seen.lease, ""})
		default:
			left := seen.since.Add(seen.lease.TTL).Sub(now)
			if left > 0 {
				next = min(next, left)
				continue
			}
			if s.extensions[name] > 0 {
				continue // its holder came in time, or what comes of it shows that it did not
			}
			seen.ending = true
			all = append(all, expiring{leaseName{name, seen.uid}, seen.lease, seen.renewal})
		}
	}
	return s.dueOrphans(now, all, next)
}

// dueOrphans adds those orphans to what is due that have waited for long enough.
func (s *leaseStates) dueOrphans(now time.Time, all []expiring, next time.Duration) ([]expiring, time.Duration, <-chan struct{}) {
	for l, o := range s.orphans {
		switch left := o.since.Add(orphanDelay).Sub(now); {
		case o.ending:
		case left > 0:
			next = min(next, left)
		default:
			o.ending = true
			all = append(all, expiring{leaseName: l})
		}
	}
	return all, next, s.changeCh
}

// noteOrphans takes in that something may be left of a lease without a record.
func (s *leaseStates) noteOrphans(l leaseName) {
	if s.orphans[l] == nil {
		s.orphans[l] = &orphan{since: time.Now()}
	}
}

// retryEnding has another try made at a lease that did not end.
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

// finishSweep takes in how a sweep went.
func (s *leaseStates) finishSweep(l leaseName, err error) {
	if err == nil {
		delete(s.orphans, l)
	} else if o := s.orphans[l]; o != nil {
		o.since, o.ending = time.Now(), false
	}
}

// uid returns the uid of the lease of a name, as far as this keeper has seen, or "".
func (s *leaseStates) uid(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if seen := s.leases[name]; seen != nil {
		return seen.uid
	}
	return ""
}
