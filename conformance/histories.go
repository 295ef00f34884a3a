package conformance

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// historyCases play random sequences of calls on a new store and compare every answer with a model, which is a map and a list of
// changes. The seeds are fixed. If a history fails, steps are removed as long as it still fails.
var historyCases = topic{"Histories", []testCase{
	{name: "Calls", run: func(s *suite) { historyKind{callSteps, false}.play(s) }},
	{name: "Watches", run: func(s *suite) { historyKind{watchSteps, false}.play(s) }},
	{name: "Past", needs: needHistorian, run: func(s *suite) { historyKind{revisionSteps, true}.play(s) }},
}}

// historyCount is the number of seeds.
const historyCount = 6

// A historyStep is a kind of step, and its relative frequency.
type historyStep struct {
	weight int
	run    func(m *modelRun)
}

var callSteps = []historyStep{
	{6, (*modelRun).writeOne}, {3, (*modelRun).deleteOne}, {5, (*modelRun).commitSome}, {4, (*modelRun).readOne}, {4, (*modelRun).listSome},
	{3, (*modelRun).listPages}, {3, (*modelRun).readOwners}, {1, (*modelRun).reopen},
}

var watchSteps = []historyStep{
	{5, (*modelRun).writeOne}, {3, (*modelRun).deleteOne}, {5, (*modelRun).commitSome}, {2, (*modelRun).readOne}, {1, (*modelRun).listSome},
	{2, (*modelRun).listPages}, {2, (*modelRun).readOwners}, {1, (*modelRun).reopen}, {3, (*modelRun).openWatch}, {4, (*modelRun).resumeWatch},
	{8, (*modelRun).readWatch}, {3, (*modelRun).requestBookmarks},
}

var revisionSteps = []historyStep{
	{4, (*modelRun).writeOne}, {2, (*modelRun).deleteOne}, {4, (*modelRun).commitSome}, {8, (*modelRun).swapOne}, {1, (*modelRun).reopen},
	{4, (*modelRun).scanSome}, {4, (*modelRun).listPages}, {3, (*modelRun).follow}, {4, (*modelRun).readFollower},
}

// A historyKind contains the steps of a case. If numbers is set, revisions are read after every change.
type historyKind struct {
	steps   []historyStep
	numbers bool
}

// play plays histories with consecutive seeds, beginning with 1.
func (k historyKind) play(s *suite) {
	for seed := range uint64(max(2, s.scale(historyCount))) {
		m, found := k.playSeed(s, seed+1, nil)
		if found == nil {
			continue
		}
		m, found = k.shorten(s, seed+1, m, found)
		s.Fatalf("%v\nThis is history %d, without the steps that it does not need:\n%s", found, seed+1, strings.Join(m.trace, "\n"))
	}
}

// shorten removes steps of a failing history, first many and then few at once, as long as it fails in the same way.
func (k historyKind) shorten(s *suite, seed uint64, m *modelRun, found *violation) (*modelRun, *violation) {
	end := time.Now().Add(min(10*time.Second, s.timeout))
	skipped := make([]bool, historyLength)
	for size := m.step / 2; size > 0; size /= 2 {
		for i := m.step - size; i >= 0 && time.Now().Before(end); i -= size {
			fewer := slices.Clone(skipped)
			for j := range size {
				fewer[i+j] = true
			}
			if shorter, again := k.playSeed(s, seed, fewer); again != nil && again.check == found.check {
				m, found, skipped = shorter, again, fewer
			}
		}
	}
	return m, found
}

// playSeed plays the history of a seed without the skipped steps.
func (k historyKind) playSeed(s *suite, seed uint64, skipped []bool) (m *modelRun, found *violation) {
	m = newModelRun(s, seed)
	defer func() {
		for _, w := range m.watches {
			w.Close()
		}
		for _, f := range m.followers {
			f.Close()
		}
		for _, h := range m.handles {
			m.closeBackend(h.Backend)
		}
		switch v := recover().(type) {
		case nil:
		case *violation:
			found = v
		default:
			panic(v)
		}
	}()
	var kinds []func(*modelRun)
	for _, step := range k.steps {
		kinds = append(kinds, slices.Repeat([]func(*modelRun){step.run}, step.weight)...)
	}
	m.numbers = k.numbers
	m.number()
	for ; m.step < historyLength; m.step++ {
		m.draw.Rand = rand.New(rand.NewPCG(seed, uint64(m.step)))
		if step := pick(m.draw, kinds...); skipped == nil || !skipped[m.step] {
			step(m)
		}
	}
	m.finish()
	return m, nil
}
