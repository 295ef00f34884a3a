package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
)

// loadCases run package faults for seconds: many clients call everything at once, and the history of all calls and events is checked.
var loadCases = topic{"Load", []testCase{
	{name: "Clients", needs: needEveryEvent, run: func(s *suite) { load(s, faults.Harness{Open: opener(s)}) }},
	{name: "Faults", needs: needEveryEvent | needURL | needFaults, run: loadWithFaults},
	{name: "BadCallsHarmNoNeighbours", run: loadNeighbours},
}}

// loadWithFaults loads the store while its database and the processes that use it fail.
func loadWithFaults(s *suite) {
	h := faults.Harness{Open: opener(s)}
	if s.h.Processes {
		processes := faults.NewProcesses(s.url)
		h.Open, h.Around, h.Faults = processes.Open, h.Open, processes.Faults()
	}
	if s.h.Faults != nil {
		h.Faults = append(h.Faults, s.h.Faults(s, s.url)...)
	}
	load(s, h)
}

// opener returns a function that opens handles in this process. The first is the handle of the case.
func opener(s *suite) func(context.Context) (storage.Backend, error) {
	first := s.b
	return func(context.Context) (b storage.Backend, err error) {
		if b, first = first, nil; b == nil {
			b = s.another()
		}
		return b, nil
	}
}

// load runs package faults with a harness for some seconds, through several handles if the store can have them.
func load(s *suite, h faults.Harness) {
	handles := 3
	if s.h.OneHandle != "" {
		handles = 1
	}
	h.Exempt = make(map[faults.Kind]string)
	for _, kind := range faults.Kinds() {
		if !slices.ContainsFunc(h.Faults, func(f faults.Fault) bool { return f.Kind == kind }) {
			h.Exempt[kind] = "the case does not inject it"
		}
	}
	h.MaxSize, h.NoResumer, h.NoBookmarker, h.NoCommitBounds = s.h.MaxSize, s.h.NoResumer, s.h.NoBookmarker, s.h.NoCommitBounds
	h.ListIsNoSnapshot, h.NoOrderAcrossKeys, h.NoHistorian = s.h.ListIsNoSnapshot, s.h.NoOrderAcrossKeys, s.h.NoHistorian
	report, err := faults.Run(s.ctx, h, faults.Options{
		For: 2 * time.Second, Round: time.Second, Handles: handles, Keys: 8,
		Timeout: s.timeout, Grace: s.timeout,
		MaxHeap: math.MaxUint64, MaxGoroutines: math.MaxInt, NoLeakCheck: true, // other cases run at the same time
	})
	s.noError("the load", err)
	for _, v := range report.Violations {
		s.Errorf("seed %d: %v", report.Seed, v)
	}
	s.Log(report)
}

// loadNeighbours makes failing and valid calls concurrently: each gets its own result.
func loadNeighbours(s *suite) {
	const rounds = 6
	victim, stale := s.create("victim"), s.create("stale")
	s.update(stale)
	bad := []struct {
		want error
		call func() error
	}{
		{storage.ErrWrongUid, func() error {
			res := withNewData(victim)
			res.Id.Uid = newUid()
			_, err := s.b.WriteCAS(s.ctx, res)
			return err
		}},
		{storage.ErrCASFailure, func() error { _, err := s.b.WriteCAS(s.ctx, withNewData(stale)); return err }},
		{storage.ErrCASFailure, func() error { return s.b.DeleteCAS(s.ctx, stale.Id, stale.Version) }},
		{storage.ErrTooLarge, func() error { _, err := s.b.WriteCAS(s.ctx, withSize(newThing("huge"), s.h.MaxSize+1)); return err }},
		{storage.ErrInvalid, func() error { _, err := s.b.WriteCAS(s.ctx, newThing("a\x00b")); return err }},
		{storage.ErrNotFound, func() error { _, err := s.b.Read(s.ctx, strong, thingID("nothing")); return err }},
		{nil, func() error { return s.b.DeleteCAS(s.ctx, thingID("nothing"), "v") }},
	}
	good := 2 * len(bad)
	s.parallel(len(bad)+good, func(i int) error {
		for n := range rounds {
			if i < len(bad) {
				if err := bad[i].call(); !errors.Is(err, bad[i].want) {
					return fmt.Errorf("bad call %d: got error %v, want %v", i, quoteError(err), bad[i].want)
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
	s.checkStored(victim)
}
