package backend

import "sync"

// positionCache remembers at which positions a handle has read the newest revisions of late: who reads on at such a revision, as a listing in
// pages does, need not have its position looked up. Whether it can still be read there ReadAt finds out each time.
type positionCache[P any] struct {
	mu sync.Mutex
	at map[int64]P
}

// maxPositions is how many revisions are remembered. Listings that go on at the same time mostly share a few.
const maxPositions = 256

// note remembers the position of a revision that is final.
func (p *positionCache[P]) note(revision int64, at P) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil {
		p.at = make(map[int64]P)
	}
	if _, there := p.at[revision]; !there && len(p.at) >= maxPositions {
		for any := range p.at {
			delete(p.at, any)
			break
		}
	}
	p.at[revision] = at
}

// of returns the position of a revision; false if that is not known.
func (p *positionCache[P]) of(revision int64) (P, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, known := p.at[revision]
	return at, known
}

// forget has a position looked up the next time.
func (p *positionCache[P]) forget(revision int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.at, revision)
}
