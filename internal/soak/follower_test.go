//go:build integration && soak

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ashlar-dev/storage"
)

// follower watches everything.
type follower struct {
	name    string
	handles []storage.Backend // it may go over from one to another
	random  *rand.Rand
	resumes int // one in so many events ends the watch, which is then resumed; 0: none
	steps   map[string][]step
}

// impatience is the deadline of each Next: shorter than some of what a watch waits for.
const impatience = 100 * time.Millisecond

// run follows until it has seen the last write to every key. stuck is how long it may take to see the next event.
func (f *follower) run(w storage.Watch, stuck time.Duration) error {
	defer func() { w.Close() }()
	f.steps = map[string][]step{}
	ended := 0
	for seen := time.Now(); ended < keys; {
		ctx, cancel := context.WithTimeout(context.Background(), impatience)
		event, err := w.Next(ctx)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded) && time.Since(seen) > stuck:
			return fmt.Errorf("no event for %v", stuck)
		case errors.Is(err, context.DeadlineExceeded):
			continue
		case err != nil:
			return err
		}
		seen = time.Now()
		if res := event.GetUpsert().GetResource(); res != nil {
			name := res.Id.Name
			f.steps[name] = append(f.steps[name], step{res.Metadata["op"], res.Version, res.Metadata["replaces"]})
			if res.Metadata["last"] != "" {
				ended++
			}
		} else if res := event.GetDelete().GetResource(); res != nil {
			f.steps[res.Id.Name] = append(f.steps[res.Id.Name], step{version: res.Version})
		}
		if f.resumes > 0 && f.random.IntN(f.resumes) == 0 {
			cursor := w.Cursor()
			w.Close()
			next, err := f.resume(cursor)
			if err != nil {
				return fmt.Errorf("resume: %w", err)
			}
			w = next
		}
	}
	return nil
}

func (f *follower) resume(cursor string) (storage.Watch, error) {
	resumer, ok := storage.As[storage.Resumer](f.handles[f.random.IntN(len(f.handles))])
	if !ok {
		return nil, errors.New("the backend is no storage.Resumer")
	}
	for attempt := 0; ; attempt++ {
		w, err := resumer.WatchFrom(context.Background(), kind, tenancy, "", cursor)
		if err == nil || attempt == 10 || !errors.Is(err, storage.ErrInconsistent) {
			return w, err
		}
	}
}
