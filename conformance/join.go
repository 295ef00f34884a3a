package conformance

import (
	"fmt"
	"sync"

	"github.com/ashlar-dev/storage"
)

var joinCases = topic{"Join", []testCase{
	{name: "SnapshotAndChangesUnderLoad", run: joinUnderLoad},
	{name: "SecondHandleUnderLoad", needs: needAnother, run: joinSecondHandle},
	{name: "ManyWatchesFromOnePoint", run: joinManyWatches},
}}

// A joined is a watch that was opened in the middle of a load, with what the journal held around that.
type joined struct {
	watch         storage.Watch
	before, after map[string]int
}

// joinUnder has writers change the store, opens watches all along the way, and holds what each shows against the journal. The
// writers wait at each stage for the next watches to be begun, so that also where writing is quick, or there is one processor
// only, the watches do not all come too late.
func watchUnderLoad(s *suite, handles []storage.Backend, writers, changes, stages int, open func(stage int, join func(func() (storage.Watch, error)) error) error) {
	s.Helper()
	j := newJournal()
	stage := make(chan struct{})
	every := max(1, changes/stages)
	wait := startLoadOn(s, handles, j, writers, changes, func(step int) {
		if step%every == 0 && step/every < stages {
			select {
			case stage <- struct{}{}:
			case <-s.ctx.Done():
			}
		}
	})
	var mu sync.Mutex
	var opened []joined
	join := func(open func() (storage.Watch, error)) error {
		before := j.mark()
		w, err := open()
		if err != nil {
			return err
		}
		after := j.mark()
		s.Cleanup(w.Close)
		mu.Lock()
		defer mu.Unlock()
		opened = append(opened, joined{w, before, after})
		return nil
	}
	for i := range stages * writers {
		s.await("a stage of the load", stage)
		s.succeeds("WatchList", open(i, join))
	}
	s.succeeds("the writers", wait())
	s.parallel(len(opened), func(i int) error {
		o := opened[i]
		d, err := drain(s, o.watch, true, j.complete())
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
	watchUnderLoad(s, s.handles(1), 4, s.scale(100), s.scale(8), func(_ int, join func(func() (storage.Watch, error)) error) error {
		return join(func() (storage.Watch, error) { return s.b.WatchList(s.ctx, things, home, "key-") })
	})
}

// joinSecondHandle has some handles write and others watch.
func joinSecondHandle(s *suite) {
	handles := s.handles(3)
	watchUnderLoad(s, handles[:2], 3, s.scale(80), s.scale(8), func(stage int, join func(func() (storage.Watch, error)) error) error {
		return join(func() (storage.Watch, error) { return handles[stage%3].WatchList(s.ctx, anything, anywhere, "") })
	})
}

// joinManyWatches opens many watches at once, which is what a restarted program does.
func joinManyWatches(s *suite) {
	watchUnderLoad(s, s.handles(1), 2, s.scale(60), 1, func(_ int, join func(func() (storage.Watch, error)) error) error {
		s.parallel(8, func(int) error {
			return join(func() (storage.Watch, error) { return s.b.WatchList(s.ctx, things, anywhere, "key-") })
		})
		return nil
	})
}
