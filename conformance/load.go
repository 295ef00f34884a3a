package conformance

import (
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// load starts writers, each with some keys of its own, which they create, update, delete and create again, and which all
// exist in the end. The function returned waits for them. A writer makes n changes and then a last one to each of its keys.
func startLoad(s *suite, j *journal, writers, n int) (wait func() error) {
	return startLoadOn(s, []storage.Backend{s.b}, j, writers, n, func(int) {})
}

// loadOn spreads the writes of load over several handles on the store. Each writer calls made after each of its changes.
func startLoadOn(s *suite, handles []storage.Backend, j *journal, writers, n int, made func(step int)) (wait func() error) {
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
				made(step)
				runtime.Gosched() // so that the writers take turns also where none ever has to wait
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
