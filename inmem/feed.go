package inmem

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// source feeds watches from the store's history.
type source struct {
	driver.Sequence
	store *store
}

var (
	_ driver.Source[position] = source{}
	_ driver.Prover[position] = source{}
)

func (s source) Run(ctx context.Context, ready func(position), publish func([]*driver.Event[position], position)) error {
	st := s.store
	st.mu.Lock()
	at, restored := st.at, st.restore
	reader, leave := st.history.addReader(at)
	st.mu.Unlock()
	ready(at)
	defer func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		leave()
	}()
	for {
		st.mu.Lock()
		var events []*driver.Event[position]
		var wake <-chan struct{}
		compacted := reader.at < st.history.from
		select {
		case <-restored:
			compacted = true
		default:
		}
		switch {
		case compacted:
		case reader.at < st.at:
			events = st.history.take(reader)
		default:
			wake = st.changeSignal()
		}
		st.mu.Unlock()
		if compacted {
			return fmt.Errorf("%w: the store was restored", storage.ErrCompacted)
		}
		if ctx.Err() != nil {
			return nil // under constant writes there is always another batch
		}
		if len(events) > 0 {
			publish(events, events[len(events)-1].At)
			continue
		}
		select {
		case <-wake:
		case <-restored:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s source) History(from position, _ *driver.Filter) driver.History[position] {
	return driver.Pages(from, s.page)
}

func (s source) page(_ context.Context, from position, limit int) ([]*driver.Event[position], position, bool, error) {
	st := s.store
	st.mu.RLock()
	defer st.mu.RUnlock()
	if from < st.history.from || from > st.at {
		return nil, 0, false, fmt.Errorf("%w: history no longer holds the position of the watch", storage.ErrCompacted)
	}
	events := st.history.since(from, limit)
	end := from + position(len(events))
	return events, end, end < st.at, nil
}

// Newest implements driver.Prover. It need not wake Run, which follows the store by itself.
func (s source) Newest(context.Context) (position, error) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	return s.store.at, nil
}
