package postgres

import (
	"math/rand/v2"
	"testing"
)

// TestPollsReadUntilEveryRequestIsReached answers requested polls in random order from a server that fails over to one that has drawn fewer
// numbers. When the polls stop reading the notes of writers, each answered request must be reached, because no later poll would prove it.
func TestPollsReadUntilEveryRequestIsReached(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 0))
		r := &run{source: &source{history: &history{}}}
		last, final := int64(0), int64(0)
		var targets []position
		var poll view
		stopped := 0
		for range 200 {
			switch random.IntN(8) {
			case 0: // a request reads the last number, and is counted later
				target := position{view: view{last: last}}
				if random.IntN(2) == 0 {
					last++
				}
				target.view.pollNumber = r.history.request(target.view.last)
				targets = append(targets, target)
			case 1: // a poll begins
				poll = view{pollNumber: r.history.pollCount.Load()}
			case 2: // and is answered
				if r.thorough() && poll.pollNumber >= r.at.view.pollNumber {
					r.at.view = view{pollNumber: poll.pollNumber, last: last, final: final}
				}
			case 3, 4:
				last++
			case 5, 6: // writers end, and others are pending
				final += random.Int64N(last - final + 1)
			default:
				if random.IntN(4) == 0 { // the crash loses what was not acknowledged
					last = final + random.Int64N(last-final+1)
				}
			}
			if r.thorough() {
				continue
			}
			stopped++
			for _, target := range targets {
				if !r.at.reaches(&target) {
					t.Fatalf("seed %d: no poll reads the notes, but %+v does not reach the request %+v", seed, r.at.view, target.view)
				}
			}
		}
		if stopped == 0 {
			t.Errorf("seed %d: each poll read the notes", seed)
		}
	}
}
