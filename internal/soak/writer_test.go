//go:build integration && soak

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

const keys = 12

var (
	kind    = storage.UnversionedType{Group: "soak", Kind: "Thing"}
	tenancy = &resourcepb.Tenancy{Partition: "p", Namespace: "n"}
)

func keyName(i int) string { return fmt.Sprintf("key-%d", i) }

// where is the id of a key, whoever lives there.
func where(name string) *resourcepb.ID {
	return &resourcepb.ID{Name: name, Tenancy: tenancy, Type: &resourcepb.Type{Group: kind.Group, GroupVersion: "v1", Kind: kind.Kind}}
}

// writer is a client that writes at random.
type writer struct {
	backend  storage.Backend
	ledger   *ledger
	random   *rand.Rand
	patience time.Duration
}

// run writes until stop is closed.
// pace is the longest pause between two operations of a writer: all of them are remembered until the end.
const pace = 40 * time.Millisecond

func (w *writer) run(stop <-chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(time.Duration(w.random.Int64N(int64(pace)))):
		}
		ctx, cancel := context.WithTimeout(context.Background(), w.patience)
		err := w.one(ctx)
		cancel()
		if err != nil {
			return err
		}
	}
}

// one does one operation or transaction.
func (w *writer) one(ctx context.Context) error {
	if w.random.IntN(6) == 0 {
		return w.transaction(ctx)
	}
	op, known, err := w.choose(ctx, keyName(w.random.IntN(keys)))
	switch {
	case !known || err != nil:
		return err
	case op.Delete != nil:
		entry := w.ledger.begin(op.Delete.Name, true)
		return w.ledger.told(entry, "", w.backend.DeleteCAS(ctx, op.Delete, op.Version))
	default:
		entry := w.enter(op.Write)
		out, err := w.backend.WriteCAS(ctx, op.Write)
		return w.ledger.told(entry, out.GetVersion(), err)
	}
}

func (w *writer) transaction(ctx context.Context) error {
	transactor, ok := storage.As[storage.Transactor](w.backend)
	if !ok {
		return errors.New("the backend is no storage.Transactor")
	}
	var ops []storage.Op
	var entries []*operation
	for _, i := range w.random.Perm(keys)[:1+w.random.IntN(3)] {
		op, known, err := w.choose(ctx, keyName(i))
		if !known || err != nil {
			return err
		}
		switch {
		case op.Delete != nil && w.random.IntN(2) == 0:
			ops, entries = append(ops, storage.Op{Check: op.Delete, Version: op.Version}), append(entries, nil)
		case op.Delete != nil:
			ops, entries = append(ops, op), append(entries, w.ledger.begin(op.Delete.Name, true))
		default:
			ops, entries = append(ops, op), append(entries, w.enter(op.Write))
		}
	}
	results, err := transactor.Commit(ctx, ops)
	for i, entry := range entries {
		if entry == nil {
			continue
		}
		version := ""
		if err == nil {
			version = results[i].GetVersion()
		}
		if err := w.ledger.told(entry, version, err); err != nil {
			return err
		}
	}
	return nil
}

// choose reads a key and decides what to do with it. known is false if the database did not answer.
func (w *writer) choose(ctx context.Context, name string) (op storage.Op, known bool, err error) {
	consistency := storage.StrongConsistency
	if w.random.IntN(2) == 0 {
		consistency = storage.EventualConsistency
	}
	stored, err := w.backend.Read(ctx, consistency, where(name))
	switch {
	case errors.Is(err, storage.ErrInconsistent), errors.Is(err, context.DeadlineExceeded):
		return op, false, nil
	case err != nil && !errors.Is(err, storage.ErrNotFound):
		return op, false, err
	case stored != nil && w.random.IntN(4) == 0:
		return storage.Op{Delete: stored.Id, Version: stored.Version}, true, nil
	}
	return storage.Op{Write: w.next(name, stored)}, true, nil
}

// next is a resource that replaces another, or nothing.
func (w *writer) next(name string, stored *resourcepb.Resource) *resourcepb.Resource {
	res := &resourcepb.Resource{Id: where(name), Version: stored.GetVersion()}
	res.Metadata = map[string]string{"replaces": res.Version, "padding": strings.Repeat("x", w.random.IntN(1500))}
	if res.Id.Uid = stored.GetId().GetUid(); res.Id.Uid == "" {
		res.Id.Uid = fmt.Sprintf("uid-%x", w.random.Uint64())
	}
	if w.random.IntN(3) == 0 {
		res.Owner = where(fmt.Sprintf("owner-%d", w.random.IntN(3)))
		res.Owner.Uid = "uid-of-owner"
	}
	return res
}

// enter notes a write in the ledger, and in the resource which entry it is.
func (w *writer) enter(res *resourcepb.Resource) *operation {
	entry := w.ledger.begin(res.Id.Name, false)
	res.Metadata["op"] = entry.name
	return entry
}

// finish writes to every key once more, so that followers can tell when they have seen everything. The proxy behaves by now.
func (w *writer) finish(ctx context.Context) error {
	for i := range keys {
		for last := false; !last; {
			stored, err := w.backend.Read(ctx, storage.StrongConsistency, where(keyName(i)))
			if err != nil && !errors.Is(err, storage.ErrNotFound) {
				return err
			}
			res := w.next(keyName(i), stored)
			res.Metadata["last"] = "yes"
			entry := w.enter(res)
			out, err := w.backend.WriteCAS(ctx, res)
			if err := w.ledger.told(entry, out.GetVersion(), err); err != nil {
				return err
			}
			last = err == nil
		}
	}
	return nil
}
