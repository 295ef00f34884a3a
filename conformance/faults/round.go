package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// round is a part of a run with keys of its own.
type round struct {
	*roundLog
	run        *run
	number     int
	namespace  string
	keys       []string
	origins    []origin     // guarded by the history
	pins       []pinned     // likewise
	followLogs []*followLog // while the round went on
	secondLog  *followLog   // and once more afterwards
}

func newRound(r *run, number int) *round {
	n := &round{roundLog: &roundLog{}, run: r, number: number, namespace: fmt.Sprintf("round-%d", number)}
	for i := range r.o.Keys {
		n.keys = append(n.keys, keyName(i))
	}
	return n
}

// logs are all of the round.
func (r *round) logs() []*followLog {
	if r.secondLog == nil {
		return nil // the round has not ended, or there are no revisions
	}
	return append(slices.Clone(r.followLogs), r.secondLog)
}

// addOrigin leaves a position behind.
func (r *round) addOrigin(o origin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const kept = 32
	if r.origins = append(r.origins, o); len(r.origins) > kept {
		r.origins = r.origins[1:]
	}
}

// pin notes a revision that scans can be at.
func (r *round) pin(m pinned) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const kept = 32
	if r.pins = append(r.pins, m); len(r.pins) > kept {
		r.pins = r.pins[1:]
	}
}

// randomPin returns a revision that an earlier scan was at; false if there is none.
func (r *round) randomPin(random *rand.Rand) (pinned, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pins) == 0 {
		return pinned{}, false
	}
	return r.pins[random.IntN(len(r.pins))], true
}
