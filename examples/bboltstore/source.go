package bboltstore

import (
	"context"

	bolt "go.etcd.io/bbolt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// source gives the changes of the file. What the numbers mean is said by driver.Sequence.
type source struct {
	driver.Sequence
	store *store
}

var (
	_ driver.Source[uint64] = source{}
	_ driver.Prover[uint64] = source{}
)

var everything = driver.Filter{Group: storage.Wildcard, Kind: storage.Wildcard, Partition: storage.Wildcard, Namespace: storage.Wildcard}

// Run implements driver.Source. All commits are made by this process, so it need not ask the file again and again.
func (s source) Run(ctx context.Context, ready func(uint64), publish func([]*driver.Event[uint64], uint64)) error {
	at, err := s.Newest(ctx)
	if err != nil {
		return err
	}
	ready(at)
	for {
		committed := s.store.file.next() // asked for before reading: a commit in between is not missed
		for more := true; more; {
			var events []*driver.Event[uint64]
			if events, at, more, err = s.store.page(at, &everything, 1000); err != nil {
				return err
			}
			publish(events, at)
		}
		select {
		case <-committed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// History implements driver.Source.
func (s source) History(from uint64, f *driver.Filter) driver.History[uint64] {
	return driver.Pages(from, func(_ context.Context, from uint64, limit int) ([]*driver.Event[uint64], uint64, bool, error) {
		return s.store.page(from, f, limit)
	})
}

// Newest implements driver.Prover.
func (s source) Newest(context.Context) (at uint64, err error) {
	err = s.store.file.view("read the newest number", func(tx *bolt.Tx) error {
		at = newest(tx)
		return nil
	})
	return at, err
}
