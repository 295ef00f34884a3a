package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// round is a part of a run with keys of its own.
type round struct {
	*history
	run       *run
	number    int
	namespace string
	keys      []string
	origins   []origin     // guarded by the history
	moorings  []moored     // likewise
	retold    []*chronicle // while the round went on
	again     *chronicle   // and once more afterwards
}

func newRound(r *run, number int) *round {
	n := &round{history: &history{}, run: r, number: number, namespace: fmt.Sprintf("round-%d", number)}
	for i := range r.o.Keys {
		n.keys = append(n.keys, keyName(i))
	}
	return n
}

// chronicles are all of the round.
func (r *round) chronicles() []*chronicle {
	if r.again == nil {
		return nil // the round has not come to its end, or there are no revisions
	}
	return append(slices.Clone(r.retold), r.again)
}

// leave leaves a position behind.
func (r *round) leave(o origin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const kept = 32
	if r.origins = append(r.origins, o); len(r.origins) > kept {
		r.origins = r.origins[1:]
	}
}

// moor notes a revision that scans can be at.
func (r *round) moor(m moored) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const kept = 32
	if r.moorings = append(r.moorings, m); len(r.moorings) > kept {
		r.moorings = r.moorings[1:]
	}
}

// mooring returns a revision that an earlier scan was at; false if there is none.
func (r *round) mooring(random *rand.Rand) (moored, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.moorings) == 0 {
		return moored{}, false
	}
	return r.moorings[random.IntN(len(r.moorings))], true
}
