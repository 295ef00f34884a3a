package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/telemetry"
)

// Swap implements history.Historian. It reads the stored resource and makes the change conditional on its version, which is unique
// among the changes of the key.
func (h historian[P]) Swap(ctx context.Context, swap history.Swap) (_ history.SwapResult, err error) {
	k, problem := check.Swap(swap, h.b.opts.MaxSize)
	ctx, call, err := h.b.begin(ctx, telemetry.Swap, problem)
	if err != nil {
		return history.SwapResult{}, err
	}
	defer call.end(&err)
	try := h.swapKnown
	for {
		swapped, err := try(ctx, k, swap)
		try = h.swapOnce
		switch {
		case err == nil:
			return swapped, nil
		case errors.Is(err, storage.ErrCASFailure) && ctx.Err() == nil:
			continue // another caller was first: the newly stored resource decides
		case errors.Is(err, storage.ErrCASFailure):
			err = fmt.Errorf("%w: other callers changed the key before every attempt: %w", storage.ErrInconsistent, ctx.Err())
		}
		return history.SwapResult{}, callError("swap", k, err)
	}
}

// swapKnown swaps without a read if the expected state is known: an absent key, or the result of this handle's last swap. If another
// state is stored, it returns storage.ErrCASFailure. If the state is unknown, it calls swapOnce.
func (h historian[P]) swapKnown(ctx context.Context, k driver.Key, swap history.Swap) (history.SwapResult, error) {
	known := h.recent(k, swap.Expect)
	switch {
	case swap.Write == nil, known == nil && swap.Expect != 0:
		return h.swapOnce(ctx, k, swap)
	case known != nil && known.Resource.GetId().GetUid() != swap.Write.GetId().GetUid():
		return h.swapOnce(ctx, k, swap) // the read decides whether the uid is refused
	}
	return h.apply(ctx, k, swap, known)
}

// swapOnce reads the stored record and applies the swap if the record is at the expected revision. It returns storage.ErrCASFailure
// if the key changes meanwhile.
func (h historian[P]) swapOnce(ctx context.Context, k driver.Key, swap history.Swap) (history.SwapResult, error) {
	stored, _, err := h.readStored(ctx, k, false)
	if err != nil {
		return history.SwapResult{}, err
	}
	if modRevision(stored) == swap.Expect && (stored != nil || swap.Write != nil) {
		return h.apply(ctx, k, swap, stored)
	}
	// Every caller must be able to read at the returned revision.
	stored, revision, err := h.readStored(ctx, k, true)
	switch {
	case err != nil:
		return history.SwapResult{}, err
	case modRevision(stored) != swap.Expect:
		return history.SwapResult{Revision: revision, Stored: stored}, nil
	case stored == nil && swap.Delete != nil:
		return history.SwapResult{Done: true, Revision: revision}, nil
	}
	return history.SwapResult{}, storage.ErrCASFailure // between the reads, the key has reached the expected revision: try again
}

// readStored returns the record stored under a key, or nil, and the position's revision, which is valid only if final is set.
func (h historian[P]) readStored(ctx context.Context, k driver.Key, final bool) (*history.Record, int64, error) {
	from := k.Bytes()
	scan, err := h.scan(ctx, driver.HistoryQuery[P]{
		Consistency: storage.StrongConsistency, Final: final, RefuseMoved: true, Key: &k, From: from, To: append(from[:len(from):len(from)], 0), Limit: 1,
	}, 0)
	if err != nil || len(scan.Records) == 0 {
		return nil, scan.Revision, err
	}
	return &scan.Records[0], scan.Revision, nil
}

func modRevision(r *history.Record) int64 {
	if r == nil {
		return 0
	}
	return r.Modified
}

// apply makes the change if the stored resource is still the given one.
func (h historian[P]) apply(ctx context.Context, k driver.Key, swap history.Swap, stored *history.Record) (history.SwapResult, error) {
	m := driver.Mutation{Exclusive: true, Verb: driver.Write, Key: k, Uid: swap.Write.GetId().GetUid(), Resource: swap.Write}
	if swap.Delete != nil {
		m = driver.Mutation{Exclusive: true, Verb: driver.Delete, Key: k, Uid: stored.Resource.GetId().GetUid()}
	}
	if stored != nil {
		m.Version = stored.Resource.GetVersion()
	}
	one := []driver.Mutation{m}
	switch err := singleError(h.b.apply(ctx, one)); {
	case errors.Is(err, storage.ErrWrongUid) && (stored == nil || stored.Resource.GetId().GetUid() == m.Uid):
		return history.SwapResult{}, storage.ErrCASFailure // another caller has created it since
	case err != nil:
		return history.SwapResult{}, err
	}
	m = one[0]
	if m.Revision == 0 {
		return history.SwapResult{}, storage.ErrCASFailure // another caller has deleted it
	}
	if !m.Final {
		if err := h.awaitFinal(ctx, m.Revision); err != nil {
			return history.SwapResult{}, err
		}
	}
	swapped := history.SwapResult{Done: true, Revision: m.Revision, Stored: stored}
	if m.Verb == driver.Write {
		record := history.Record{Resource: result(&m), Created: m.Revision, Modified: m.Revision, Writes: 1}
		if stored != nil {
			record.Created, record.Writes = stored.Created, stored.Writes+1
		}
		swapped.Stored = &record
		h.remember(k, &record)
	}
	return swapped, nil
}

// awaitFinal waits until no further change up to the revision can appear.
func (h historian[P]) awaitFinal(ctx context.Context, revision int64) error {
	err := h.b.historian.AwaitFinal(ctx, revision)
	if err == nil || errors.Is(err, storage.ErrCompacted) {
		return nil
	}
	return fmt.Errorf("%w: the swap was applied at revision %d, but earlier changes may still be pending: %w",
		storage.ErrInconsistent, revision, err)
}

// remember records the result of a swap.
func (h historian[P]) remember(k driver.Key, stored *history.Record) {
	// The strings may share memory with larger ones.
	k = driver.Key{
		Group: strings.Clone(k.Group), Kind: strings.Clone(k.Kind), Name: strings.Clone(k.Name),
		Partition: strings.Clone(k.Partition), Namespace: strings.Clone(k.Namespace),
	}
	h.b.swaps.put(k, swapState{
		uid: strings.Clone(stored.Resource.GetId().GetUid()), version: strings.Clone(stored.Resource.GetVersion()),
		createRevision: stored.Created, modifyRevision: stored.Modified, writes: stored.Writes,
	})
}

// recent returns the record of a key if this handle's last swap left it at a revision, otherwise nil. Only the uid and the version of
// its resource are set.
func (h historian[P]) recent(k driver.Key, revision int64) *history.Record {
	s, known := h.b.swaps.get(k)
	if !known || s.modifyRevision != revision {
		return nil
	}
	return &history.Record{
		Resource: &resourcepb.Resource{Id: &resourcepb.ID{Uid: s.uid}, Version: s.version},
		Created:  s.createRevision, Modified: s.modifyRevision, Writes: s.writes,
	}
}
