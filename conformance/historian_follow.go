package conformance

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

func historianFollow(s *suite) {
	h := s.historian()
	early, err := h.Follow(s.ctx, history.Span{}, newestRevision(s, h))
	s.noError("Follow", err)
	defer early.Close()
	past := randomWrites(s, h, s.scale(40))
	for i, m := range past {
		late, err := h.Follow(s.ctx, history.Span{}, m.revision)
		s.noError("Follow", err)
		defer late.Close()
		checkReplay(s, late, past[i:])
	}
	checkReplay(s, early, past)
}

// historianFollowRange checks a follower of a range: it reports the changes in the range and the ends of their commits.
func historianFollowRange(s *suite) {
	h := s.historian()
	transactor, _ := storage.As[storage.Transactor](s.b)
	from, to := thingID("m"), thingID("n")
	f, err := h.Follow(s.ctx, history.Span{From: from, To: to}, newestRevision(s, h))
	s.noError("Follow", err)
	defer f.Close()
	s.create("a")
	_, err = transactor.Commit(s.ctx, []storage.Op{{Write: newThing("b")}, {Write: newThing("m")}, {Write: newThing("m1")}, {Write: newThing("n")}, {Write: newThing("z")}})
	s.noError("Commit", err)
	s.create("n2")
	newest := newestRevision(s, h) // a revision may count other stores' changes, which go on
	commits, revision := followToNewest(s, f)
	if len(commits) != 1 || len(commits[0]) != 2 {
		s.Fatalf("%d commits from m to n, expected one of 2 changes: %+v", len(commits), commits)
	}
	for _, c := range commits[0] {
		if name := c.Now.Resource.Id.Name; name != "m" && name != "m1" {
			s.Fatalf("a change of %q from m to n", name)
		}
	}
	if revision < newest {
		s.Fatalf("progress up to %d, acknowledged was %d", revision, newest)
	}
}

// historianRestart checks that history is complete and continues after the store is opened again.
func historianRestart(s *suite) {
	past := randomWrites(s, s.historian(), s.scale(20))
	s.noError("Close", s.b.Close())
	s.b = s.another()
	h := s.historian()
	last := past[len(past)-1]
	if newest := newestRevision(s, h); newest < last.revision {
		s.Fatalf("the newest revision is %d after a restart, it was %d before", newest, last.revision)
	}
	past[len(past)-1].revision = last.revision
	past = append(past, randomWrites(s, h, s.scale(10))[1:]...)
	for _, m := range past {
		got, _ := scanAll(s, h, history.Span{}, history.ScanOptions{Revision: m.revision})
		sameRecords(s, fmt.Sprintf("the scan at revision %d", m.revision), got, m.state.records())
	}
	f, err := h.Follow(s.ctx, history.Span{}, past[0].revision)
	s.noError("Follow", err)
	defer f.Close()
	checkReplay(s, f, past)
}

// historianRecall checks that events report the previous state of their key.
func historianRecall(s *suite) {
	h := s.historian()
	w, err := s.b.WatchList(s.ctx, anything, anywhere, "")
	s.noError("WatchList", err)
	defer w.Close()
	recaller, ok := w.(history.Recaller)
	if !ok {
		s.Fatal("the watch is no history.Recaller")
	}
	recaller.Recall()
	past := randomWrites(s, h, s.scale(30))
	marker, ok := w.(storage.Bookmarker)
	if !ok {
		s.Fatal("the watch is no storage.Bookmarker")
	}
	s.noError("Bookmark", marker.Bookmark(s.ctx))
	now := make(map[string]*resourcepb.Resource)
	for {
		ctx, cancel := s.timeoutContext()
		ev, err := w.Next(ctx)
		cancel()
		s.noError("Next", err)
		res := ev.GetUpsert().GetResource()
		if ev.GetDelete() != nil {
			res = ev.GetDelete().GetResource()
		}
		if ev.GetBookmark() != nil {
			break
		}
		if res == nil {
			continue
		}
		if k := keyOf(res.Id); !proto.Equal(ev.Before, now[k]) {
			s.Fatalf("the previous state in an event:\n got %s\nwant %s", shortText(ev.Before), shortText(now[k]))
		}
		now[keyOf(res.Id)] = res
		if ev.GetDelete() != nil {
			delete(now, keyOf(res.Id))
		}
	}
	if last := past[len(past)-1].state; len(now) != len(last) {
		s.Fatalf("the events make up %d resources, stored are %d", len(now), len(last))
	}
}
