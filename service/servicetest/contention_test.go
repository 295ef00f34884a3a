package servicetest

import (
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/resourcepb"
)

var contentionCases = topic{"Contention", []testCase{
	{name: "StatusesBesideStatuses", rules: []int{7}, run: contentionStatuses},
	{name: "WritesBesideStatuses", rules: []int{8}, run: contentionWrites},
	{name: "BlanketWrites", rules: []int{24}, run: contentionBlanket},
	{name: "VersionedWrites", rules: []int{1, 24}, run: contentionVersioned},
	{name: "OneCreates", rules: []int{9, 24}, run: contentionCreates},
}}

// untilDone repeats a write until it is acknowledged. It repeats only after Aborted.
func (s *suite) untilDone(what string, write func() error) error {
	for {
		err := write()
		if err == nil {
			return nil
		}
		if status.Code(err) != codes.Aborted || s.ctx.Err() != nil {
			return fmt.Errorf("%s: %w, expected success or %v", what, err, codes.Aborted)
		}
	}
}

func contentionStatuses(s *suite) {
	res := s.write(newThing("a", "content"))
	last := make([]string, 20) // the last acknowledged value by key
	s.parallel(len(last), func(i int) error {
		for round := range 2 {
			message := fmt.Sprintf("round %d", round)
			req := statusOf(res, fmt.Sprintf("key-%d", i), message)
			if err := s.untilDone("WriteStatus", func() error { return only(s.WriteStatus(s.ctx, req)) }); err != nil {
				return err
			}
			last[i] = message
		}
		return nil
	})
	now := s.read(res.GetId())
	for i, want := range last {
		if got := now.GetStatus()[fmt.Sprintf("key-%d", i)].GetConditions(); len(got) != 1 || got[0].GetMessage() != want {
			s.Errorf("the status of key %d is lost: it is %v, and %q was acknowledged", i, got, want)
		}
	}
}

func contentionWrites(s *suite) {
	res := s.write(newThing("a", "content"))
	rounds := s.scale(20)
	s.parallel(2, func(i int) error {
		for n := range rounds {
			text := fmt.Sprintf("round %d", n)
			err := s.untilDone("a write", func() error {
				if i == 0 {
					return only(s.WriteStatus(s.ctx, statusOf(res, "key", text)))
				}
				return only(s.Write(s.ctx, &resourcepb.WriteRequest{Resource: newThing("a", text)}))
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	now, want := s.read(res.GetId()), fmt.Sprintf("round %d", rounds-1)
	if got := stringOf(now); got != want {
		s.Errorf("a Write is lost: the content is %q, and %q was acknowledged", got, want)
	}
	if got := now.GetStatus()["key"].GetConditions(); len(got) != 1 || got[0].GetMessage() != want {
		s.Errorf("a WriteStatus is lost: it is %v, and %q was acknowledged", got, want)
	}
}

func contentionBlanket(s *suite) {
	w := s.watch(&resourcepb.WatchListRequest{Type: thing})
	w.snapshot()
	var done atomic.Int32
	contents := make(chan string, 16)
	s.parallel(cap(contents), func(i int) error {
		content := fmt.Sprintf("writer %d", i)
		answer, err := s.Write(s.ctx, &resourcepb.WriteRequest{Resource: newThing("a", content)})
		switch {
		case status.Code(err) == codes.Aborted:
			return nil
		case err != nil:
			return fmt.Errorf("a blanket write: %w, expected success or %v", err, codes.Aborted)
		case stringOf(answer.GetResource()) != content:
			return fmt.Errorf("a blanket write of %q is answered with %s", content, text(answer.GetResource()))
		}
		done.Add(1)
		contents <- content
		return nil
	})
	close(contents)
	seen := map[string]int{}
	for range done.Load() {
		seen[stringOf(w.upsert("a"))]++
	}
	for content := range contents {
		if seen[content] != 1 {
			s.Errorf("the write by %s is acknowledged, and a watch has seen it %d times", content, seen[content])
		}
	}
	s.write(newThing("flush", "content"))
	w.upsert("flush")
}

// contentionVersioned lets callers compete for one version; exactly one wins.
func contentionVersioned(s *suite) {
	res := s.write(newThing("a", "content"))
	for range 3 {
		var won atomic.Int32
		s.parallel(8, func(i int) error {
			req := but(res, func(r *resourcepb.Resource) { r.Data = payload(fmt.Sprintf("writer %d", i)) })
			err := only(s.Write(s.ctx, &resourcepb.WriteRequest{Resource: req}))
			if err == nil {
				won.Add(1)
				return nil
			}
			if wrong := mismatch(err, codes.Aborted, exactly(casFailure)); wrong != "" {
				return fmt.Errorf("a write at a version: %s", wrong)
			}
			return nil
		})
		if won.Load() != 1 {
			s.Fatalf("%d writes at one version succeeded, expected 1", won.Load())
		}
		res = s.read(res.GetId())
	}
}

// contentionCreates lets callers create one resource concurrently: it has one uid.
func contentionCreates(s *suite) {
	uids := make([]string, 8)
	s.parallel(len(uids), func(i int) error {
		return s.untilDone("Write", func() error {
			answer, err := s.Write(s.ctx, &resourcepb.WriteRequest{Resource: newThing("a", fmt.Sprintf("writer %d", i))})
			uids[i] = answer.GetResource().GetId().GetUid()
			return err
		})
	})
	for _, uid := range uids {
		if uid != uids[0] {
			s.Errorf("two callers created one resource, with the uids %s and %s", uids[0], uid)
		}
	}
}
