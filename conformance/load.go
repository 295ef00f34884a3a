package conformance

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
)

// loadCases run package faults without faults: many clients call everything at once, and the history of all calls and events is
// checked.
var loadCases = topic{"Load", []testCase{
	{name: "OneHandle", needs: needEveryEvent, run: func(s *suite) { runLoad(s, 1) }},
	{name: "SeveralHandles", needs: needEveryEvent | needAnother, run: func(s *suite) { runLoad(s, 3) }},
	{name: "BadCallsHarmNoNeighbours", run: loadNeighbours},
}}

// runLoad loads the store for some seconds through a number of handles.
func runLoad(s *suite, handles int) {
	exempt := make(map[faults.Kind]string)
	for _, kind := range faults.Kinds() {
		exempt[kind] = "no fault is injected"
	}
	first := s.b
	report, err := faults.Run(s.ctx, faults.Harness{
		Open: func(context.Context) (b storage.Backend, err error) {
			if b, first = first, nil; b == nil {
				b = s.another()
			}
			return b, nil
		},
		Exempt:            exempt,
		MaxSize:           s.h.MaxSize,
		NoResumer:         s.h.NoResumer,
		NoBookmarker:      s.h.NoBookmarker,
		NoCommitBounds:    s.h.NoCommitBounds,
		ListIsNoSnapshot:  s.h.ListIsNoSnapshot,
		NoOrderAcrossKeys: s.h.NoOrderAcrossKeys,
		NoHistorian:       s.h.NoHistorian,
	}, faults.Options{
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
