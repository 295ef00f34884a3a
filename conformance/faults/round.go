package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// round is a part of a run with its own keys.
type round struct {
	*roundLog
	run        *run
	number     int
	namespace  string
	keys       []string
	origins    []origin         // guarded by roundLog.mu
	pins       []pinnedRevision // guarded by roundLog.mu
	followLogs []*followLog     // of the running round
	secondLog  *followLog       // of the second pass after the round
}

func newRound(r *run, number int) *round {
	n := &round{roundLog: &roundLog{}, run: r, number: number, namespace: fmt.Sprintf("round-%d", number)}
	for i := range r.o.Keys {
		n.keys = append(n.keys, keyName(i))
	}
	return n
}

// logs returns all logs of the round.
func (r *round) logs() []*followLog {
	if r.secondLog == nil {
		return nil // the round has not ended, or there are no revisions
	}
	return append(slices.Clone(r.followLogs), r.secondLog)
}

// addOrigin shares a position with other clients.
func (r *round) addOrigin(o origin) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const kept = 32
	if r.origins = append(r.origins, o); len(r.origins) > kept {
		r.origins = r.origins[1:]
	}
}

// pin stores the revision of a scan for later scans.
func (r *round) pin(m pinnedRevision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const kept = 32
	if r.pins = append(r.pins, m); len(r.pins) > kept {
		r.pins = r.pins[1:]
	}
}

// randomPin returns the revision of an earlier scan, or false if there is none.
func (r *round) randomPin(random *rand.Rand) (pinnedRevision, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pins) == 0 {
		return pinnedRevision{}, false
	}
	return r.pins[random.IntN(len(r.pins))], true
}
