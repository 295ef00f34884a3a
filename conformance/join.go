package conformance

import (
	"fmt"
	"math/rand/v2"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var joinCases = topic{"Join", []testCase{
	{name: "SnapshotAndChangesUnderLoad", run: joinUnderLoad},
	{name: "SecondHandleUnderLoad", needs: needAnother, run: joinSecondHandle},
	{name: "ManyWatchesFromOnePoint", run: joinManyWatches},
}}

// load starts writers, each with some keys of its own, which they create, update, delete and create again, and which all
// exist in the end. The function returned waits for them. A writer makes n changes and then a last one to each of its keys.
func (s *suite) load(j *journal, writers, n int) (wait func() error) {
	return s.loadOn([]storage.Backend{s.b}, j, writers, n)
}

// loadOn spreads the writes of load over several handles on the store.
func (s *suite) loadOn(handles []storage.Backend, j *journal, writers, n int) (wait func() error) {
	done := make(chan error, writers)
	for i := range writers {
		go func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			stored := make([]*resourcepb.Resource, 3)
			for step := range n + len(stored) {
				b := handles[step%len(handles)]
				k := random.IntN(len(stored))
				last := step >= n
				if last {
					k = step - n
				}
				var err error
				switch {
				case stored[k] != nil && !last && random.IntN(4) == 0:
					if err = b.DeleteCAS(s.ctx, stored[k].Id, stored[k].Version); err == nil {
						j.deleted(stored[k])
						stored[k] = nil
					}
				default:
					res := newThing(fmt.Sprintf("key-%d-%d", i, k))
					if stored[k] != nil {
						res = changed(stored[k])
					}
					replaced := res.Version
					if stored[k], err = b.WriteCAS(s.ctx, res); err == nil {
						j.wrote(replaced, stored[k])
					}
				}
				if err != nil {
					done <- fmt.Errorf("writer %d, change %d: %w", i, step, err)
					return
				}
			}
			done <- nil
		}()
	}
	return func() error {
		for range writers {
			if err := <-done; err != nil {
				return err
			}
		}
		return nil
	}
}

// A joined is a watch that was opened in the middle of a load, with what the journal held around that.
type joined struct {
	watch         storage.Watch
	before, after map[string]int
}

// join opens watches while the load is on, lets it end, and holds each against the journal.
func (s *suite) join(j *journal, opened []joined, wait func() error) {
	s.Helper()
	s.succeeds("the writers", wait())
	s.parallel(len(opened), func(i int) error {
		o := opened[i]
		d, err := s.drain(o.watch, true, j.complete())
		if err == nil {
			err = j.check(d, o.before, o.after, s.h.MergesEvents != "")
		}
		if err != nil {
			return fmt.Errorf("watch %d of %d: %w", i, len(opened), err)
		}
		return nil
	})
}

func joinUnderLoad(s *suite) {
	j := newJournal()
	wait := s.load(j, 4, s.scale(100))
	var opened []joined
	for range s.scale(24) {
		before := j.mark()
		w := s.watch(things, home, "key-")
		opened = append(opened, joined{w, before, j.mark()})
	}
	s.join(j, opened, wait)
}

func joinSecondHandle(s *suite) {
	j := newJournal()
	handles := []storage.Backend{s.b, s.another(), s.another()}
	wait := s.loadOn(handles[:2], j, 3, s.scale(80))
	var opened []joined
	for i := range s.scale(18) {
		before := j.mark()
		w, err := handles[i%3].WatchList(s.ctx, anything, anywhere, "")
		s.opened(w, err)
		opened = append(opened, joined{w, before, j.mark()})
	}
	s.join(j, opened, wait)
}

// joinManyWatches opens many watches at once, which is what a restarted program does.
func joinManyWatches(s *suite) {
	j := newJournal()
	wait := s.load(j, 2, s.scale(60))
	opened := make([]joined, 16)
	s.parallel(len(opened), func(i int) error {
		before := j.mark()
		w, err := s.b.WatchList(s.ctx, things, anywhere, "key-")
		if err != nil {
			return err
		}
		opened[i] = joined{w, before, j.mark()}
		return nil
	})
	for _, o := range opened {
		s.Cleanup(o.watch.Close)
	}
	s.join(j, opened, wait)
}
