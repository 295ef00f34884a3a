package etcd

import (
	"context"
	"sync"
)

// A bookmark is proven by revisions. A linearizable read names a revision that contains everything acknowledged before. The
// feed's watch of etcd gets there by an event of that revision or a later one, or, where nothing of the store changes, by the
// server's word that it has sent all up to a revision. It is asked for that word until the revision is reached: a member that
// is behind, or that has events to send first, gives none or one about an older revision.

func newSource(b *handle) *source {
	return &source{b: b, wanted: wanted{raised: make(chan struct{})}}
}

// wanted is the newest revision that a bookmark was promised for.
type wanted struct {
	mu     sync.Mutex
	rev    int64
	raised chan struct{} // closed and replaced when rev is raised
}

// revision returns what is wanted now, and what is closed when it is more.
func (w *wanted) revision() (rev int64, raised <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rev, w.raised
}

func (w *wanted) raise(rev int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if rev > w.rev {
		w.rev = rev
		close(w.raised)
		w.raised = make(chan struct{})
	}
}

// Newest implements driver.Prover.
func (s *source) Newest(ctx context.Context) (position, error) {
	ctx, cancel := context.WithTimeout(ctx, s.b.opts.Timeout)
	defer cancel()
	ctx, done, err := s.b.begin(ctx)
	if err != nil {
		return position{}, err
	}
	defer done()
	seen := s.b.seen.Load()
	rev, err := s.b.revision(ctx)
	switch {
	case err != nil:
		return position{}, err
	case rev < seen:
		return position{}, errWentBack
	}
	s.wanted.raise(rev)
	return endOf(rev), nil
}

// Reached implements driver.Prover.
func (s *source) Reached(at, target position) bool { return !at.less(target) }
