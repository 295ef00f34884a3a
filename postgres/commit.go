package postgres

import (
	"context"
	"slices"

	"github.com/ashlar-dev/storage"
)

// commit carries out mutations of different keys, all or none of them. The error of one that failed is a *storage.OpError with its
// place in ms.
func (w *writer) commit(ctx context.Context, ms []*mutation) error {
	sorted := withPresence(ms)
	slices.SortFunc(sorted, byKey)
	err := w.whileBusy(ctx, ms, func() error {
		busy := false
		err := w.settled(ctx, sorted, func(ctx context.Context) (err error) {
			busy = false
			if slices.ContainsFunc(ms, (*mutation).changed) {
				return nil // an earlier attempt, and all of it
			}
			if err := w.send(ctx, sorted, true); err != nil {
				return err
			}
			busy, err = decideAll(ms)
			return err
		})
		if err == nil && busy {
			return errBusy
		}
		return err
	})
	w.replica.answered() // before the feed can show the changes
	if slices.ContainsFunc(ms, (*mutation).changed) {
		w.announce(sorted)
		return nil
	}
	return err
}

// withPresence returns mutations with a check beside each delete that is refused where there is nothing to delete: to the function apply
// that is no reason to leave the others undone.
func withPresence(ms []*mutation) []*mutation {
	all := slices.Clone(ms)
	for _, m := range ms {
		if m.Present {
			all = append(all, m.presence())
		}
	}
	return all
}

// decideAll is the answer to a transaction whose statement was answered.
func decideAll(ms []*mutation) (busy bool, err error) {
	for i, m := range ms {
		again, err := m.decide()
		if err != nil {
			return false, permanent{&storage.OpError{Index: i, Err: err}}
		}
		busy = busy || again
	}
	// What could have been done was not, where another mutation was in the way.
	return busy, nil
}
