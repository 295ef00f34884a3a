package conformance

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var concurrencyCases = topic{"Concurrency", []testCase{
	{name: "NoLostUpdate", run: concurrencyNoLostUpdate},
	{name: "NoLostUpdateAcrossHandles", needs: needAnother, run: concurrencyAcrossHandles},
	{name: "OneCreates", run: concurrencyOneCreates},
	{name: "WriteAgainstDelete", run: concurrencyWriteAgainstDelete},
	{name: "OwnKeysNeverConflict", run: concurrencyOwnKeys},
	{name: "BadCallsHarmNoNeighbours", run: concurrencyNeighbours},
}}

func concurrencyNoLostUpdate(s *suite) { countOnAll(s, s.handles(1)) }

func concurrencyAcrossHandles(s *suite) { countOnAll(s, s.handles(3)) }

// noLostUpdate has writers fight for one key, without any pause. The proof is the journal's: no version was replaced twice, and
// the chain of replacements ends with what is stored.
func countOnAll(s *suite, handles []storage.Backend) {
	s.Helper()
	j := newJournal()
	first := s.create("hot")
	j.wrote("", first)
	var conflicts atomic.Int64
	s.parallel(6, func(worker int) error {
		b := handles[worker%len(handles)]
		res := first
		for range s.scale(40) {
			runtime.Gosched()
			stored, err := b.WriteCAS(s.ctx, changed(res))
			if err == nil {
				j.wrote(res.Version, stored)
				res = stored
				continue
			}
			if !errors.Is(err, storage.ErrCASFailure) {
				return err
			}
			conflicts.Add(1)
			if res, err = b.Read(s.ctx, strong, first.Id); err != nil {
				return err
			}
		}
		return nil
	})
	s.succeeds("the writers", j.chain())
	entries := j.keys[keyOf(first.Id)]
	s.stored(subject(entries[len(entries)-1].event))
	s.Logf("%d writes, %d conflicts", len(entries), conflicts.Load())
}

// concurrencyOneCreates has several callers create one key, each with a uid of its own.
func concurrencyOneCreates(s *suite) {
	const callers = 6
	w := s.watchAll()
	for round := range s.scale(12) {
		stored := make([]*resourcepb.Resource, callers)
		s.parallel(callers, func(i int) (err error) {
			if stored[i], err = s.b.WriteCAS(s.ctx, newThing(fmt.Sprintf("name-%d", round))); !errors.Is(err, storage.ErrWrongUid) {
				return err
			}
			return nil
		})
		var winner *resourcepb.Resource
		for _, res := range stored {
			switch {
			case res == nil:
			case winner != nil:
				s.Fatal("two callers created one key")
			default:
				winner = res
			}
		}
		if winner == nil {
			s.Fatal("nobody created the key")
		}
		s.stored(winner)
		s.upsert(w, winner)
	}
}

// concurrencyWriteAgainstDelete lets a write and a delete of the same version race: one of them wins, and the other is told.
func concurrencyWriteAgainstDelete(s *suite) {
	w := s.watchAll()
	for range s.scale(20) {
		res := s.create("a")
		s.upsert(w, res)
		var written *resourcepb.Resource
		var writeErr, deleteErr error
		s.parallel(2, func(i int) error {
			if i == 0 {
				written, writeErr = s.b.WriteCAS(s.ctx, changed(res))
			} else {
				deleteErr = s.b.DeleteCAS(s.ctx, res.Id, res.Version)
			}
			return nil
		})
		if writeErr == nil {
			s.fails("DeleteCAS beside a write that won", deleteErr, storage.ErrCASFailure)
			s.stored(written)
			s.upsert(w, written)
			s.delete(written)
			s.deletion(w, written)
			continue
		}
		s.succeeds("DeleteCAS beside a write that lost", deleteErr)
		s.fails("WriteCAS beside a delete that won", writeErr, storage.ErrCASFailure)
		s.absent(res.Id)
		s.deletion(w, res)
	}
}

func concurrencyOwnKeys(s *suite) {
	const workers = 8
	final := make([]*resourcepb.Resource, workers)
	s.parallel(workers, func(i int) error {
		res := newThing(fmt.Sprintf("own-%d", i))
		for range s.scale(24) {
			stored, err := s.b.WriteCAS(s.ctx, res)
			if err != nil {
				return fmt.Errorf("nobody else writes this key, yet: %w", err)
			}
			final[i] = stored
			res = changed(stored)
		}
		return nil
	})
	s.sameList("List", s.list(things, home, ""), final)
}

// concurrencyNeighbours mixes calls that fail in every way with calls that are fine, all at once: each gets its own answer.
func concurrencyNeighbours(s *suite) {
	const rounds = 6
	victim, stale := s.create("victim"), s.create("stale")
	s.update(stale)
	bad := []struct {
		want error
		call func() error
	}{
		{storage.ErrWrongUid, func() error {
			res := changed(victim)
			res.Id.Uid = newUid()
			_, err := s.b.WriteCAS(s.ctx, res)
			return err
		}},
		{storage.ErrCASFailure, func() error { _, err := s.b.WriteCAS(s.ctx, changed(stale)); return err }},
		{storage.ErrCASFailure, func() error { return s.b.DeleteCAS(s.ctx, stale.Id, stale.Version) }},
		{storage.ErrTooLarge, func() error { _, err := s.b.WriteCAS(s.ctx, sized(newThing("huge"), s.h.MaxSize+1)); return err }},
		{storage.ErrInvalid, func() error { _, err := s.b.WriteCAS(s.ctx, newThing("a\x00b")); return err }},
		{storage.ErrNotFound, func() error { _, err := s.b.Read(s.ctx, strong, thingID("nothing")); return err }},
		{nil, func() error { return s.b.DeleteCAS(s.ctx, thingID("nothing"), "v") }},
	}
	good := 2 * len(bad)
	s.parallel(len(bad)+good, func(i int) error {
		for n := range rounds {
			if i < len(bad) {
				if err := bad[i].call(); !errors.Is(err, bad[i].want) {
					return fmt.Errorf("bad call %d: got error %v, want %v", i, quoted(err), bad[i].want)
				}
				continue
			}
			res := newThing(fmt.Sprintf("good-%d-%d", i, n))
			stored, err := s.b.WriteCAS(s.ctx, res)
			if err != nil {
				return fmt.Errorf("a good write beside bad ones: %w", err)
			}
			got, err := s.b.Read(s.ctx, strong, res.Id)
			if err != nil || got.Version != stored.Version {
				return fmt.Errorf("a good read beside bad ones: version %q, error %w", got.GetVersion(), err)
			}
		}
		return nil
	})
	s.stored(victim)
}
