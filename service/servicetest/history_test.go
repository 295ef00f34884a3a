package servicetest

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

var historyCases = topic{"History", []testCase{
	{name: "Refused", rules: []int{1}, run: historyRefused},
	{name: "Forgotten", rules: []int{1}, alone: true, run: historyForgotten},
	{name: "Callers", rules: []int{1, 3}, run: historyCallers},
	{name: "AsItWas", rules: []int{25}, run: historyAsItWas},
	{name: "Changes", rules: []int{25}, run: historyChanges},
	{name: "ConcurrentChanges", rules: []int{25}, run: historyConcurrentChanges},
	{name: "Access", rules: []int{3, 25}, run: historyAccess},
	{name: "Leaving", rules: []int{3, 25}, run: historyLeaving},
}}

// historian returns the history of the store. If the store has none, it checks that the server reports that, and returns false.
func (s *suite) historian() (history.Historian, bool) {
	s.Helper()
	h, ok := storage.As[history.Historian](s.store)
	if !ok {
		for what, call := range past {
			s.fails(what+" of a store without a past", call(s, s.ctx, thing), codes.Unimplemented, "the store does not number its changes")
		}
	}
	return h, ok
}

// past has the methods of the history service, each with a request for the default tenancy from the first revision on.
var past = map[string]func(s *suite, ctx context.Context, t *resourcepb.Type) error{
	"Revisions": func(s *suite, ctx context.Context, t *resourcepb.Type) error {
		return only(s.Revisions(ctx, &resourcepb.RevisionsRequest{Type: t, Tenancy: &resourcepb.Tenancy{}}))
	},
	"ListAt": func(s *suite, ctx context.Context, t *resourcepb.Type) error {
		return only(s.ListAt(ctx, &resourcepb.ListAtRequest{Type: t, Tenancy: &resourcepb.Tenancy{}}))
	},
	"Changes": func(s *suite, ctx context.Context, t *resourcepb.Type) error {
		h, ok := storage.As[history.Historian](s.store)
		after := int64(1)
		if ok {
			oldest, _, err := h.Revisions(ctx)
			if err != nil {
				return err
			}
			after = oldest
		}
		return only(s.changes(ctx, &resourcepb.ChangesRequest{Type: t, Tenancy: &resourcepb.Tenancy{}, After: after}))
	},
}

// newest returns the newest revision of the store.
func (s *suite) newest() int64 {
	s.Helper()
	answer, err := s.Revisions(s.ctx, &resourcepb.RevisionsRequest{Type: thing, Tenancy: anywhere})
	s.succeeds("Revisions", err)
	return answer.GetNewest()
}

// listAt returns the records of all pages of a request.
func (s *suite) listAt(ctx context.Context, req *resourcepb.ListAtRequest) (all []*resourcepb.Record) {
	s.Helper()
	req = clone(req)
	for {
		page, err := s.ListAt(ctx, req)
		s.succeeds("ListAt", err)
		if n := len(page.GetRecords()); req.GetLimit() > 0 && n > int(req.GetLimit()) {
			s.Fatalf("a page of %d has %d records", req.GetLimit(), n)
		}
		if page.GetContinue() != "" && len(page.GetRecords()) == 0 {
			s.Fatalf("a page is empty, but has a continue token")
		}
		all = append(all, page.GetRecords()...)
		if page.GetContinue() == "" {
			if req.GetContinue() != "" && len(page.GetRecords()) == 0 {
				s.Errorf("a page after a continue token is empty")
			}
			return all
		}
		req.Revision, req.Continue = page.GetRevision(), page.GetContinue()
	}
}

// changes reads a stream of changes to its end.
func (s *suite) changes(ctx context.Context, req *resourcepb.ChangesRequest) (all []*resourcepb.Change, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.h.Timeout)
	defer cancel()
	stream, err := s.Changes(ctx, req)
	if err != nil {
		return nil, err
	}
	for {
		change, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, change)
	}
}

// showsRecords checks the names of records.
func (s *suite) showsRecords(what string, got []*resourcepb.Record, want ...string) {
	s.Helper()
	resources := make([]*resourcepb.Resource, len(got))
	for i, r := range got {
		resources[i] = r.GetResource()
	}
	s.shows(what, resources, want...)
}

func historyRefused(s *suite) {
	s.write(newThing("a", "content"))
	s.write(newThing("b", "content"))
	if _, ok := s.historian(); !ok {
		return
	}
	newest := s.newest()
	const ahead = 1 << 40
	page, err := s.ListAt(s.ctx, &resourcepb.ListAtRequest{Type: thing, Tenancy: anywhere, Limit: 1})
	s.succeeds("ListAt", err)
	list := func(change func(*resourcepb.ListAtRequest)) func(*suite) error {
		req := but(&resourcepb.ListAtRequest{Type: thing, Tenancy: anywhere}, change)
		return func(s *suite) error { return only(s.ListAt(s.ctx, req)) }
	}
	changes := func(change func(*resourcepb.ChangesRequest)) func(*suite) error {
		req := but(&resourcepb.ChangesRequest{Type: thing, Tenancy: anywhere, After: newest}, change)
		return func(s *suite) error { return only(s.changes(s.ctx, req)) }
	}
	rows := []row{
		{"ListAt without a type", list(func(q *resourcepb.ListAtRequest) { q.Type = nil }), codes.InvalidArgument, "^type is required"},
		{"ListAt without a tenancy", list(func(q *resourcepb.ListAtRequest) { q.Tenancy = nil }), codes.InvalidArgument, "^tenancy is required"},
		{"ListAt of a prefix in upper case", list(func(q *resourcepb.ListAtRequest) { q.NamePrefix = "A" }), codes.InvalidArgument,
			"^name_prefix"},
		{"ListAt with a negative limit", list(func(q *resourcepb.ListAtRequest) { q.Limit = -1 }), codes.InvalidArgument, "^limit"},
		{"ListAt before the beginning", list(func(q *resourcepb.ListAtRequest) { q.Revision = -1 }), codes.InvalidArgument, "^revision"},
		{"ListAt at a revision to come", list(func(q *resourcepb.ListAtRequest) { q.Revision = newest + ahead }), codes.OutOfRange,
			exactly(storage.ErrFutureRevision.Error())},
		{"ListAt of garbage", list(func(q *resourcepb.ListAtRequest) { q.Revision, q.Continue = newest, "garbage" }), codes.InvalidArgument,
			"^continue"},
		{"ListAt of another listing", list(func(q *resourcepb.ListAtRequest) {
			q.NamePrefix, q.Revision, q.Continue = "b", newest, page.GetContinue()
		}), codes.InvalidArgument, "^continue"},
		{"ListAt of another page without its revision", list(func(q *resourcepb.ListAtRequest) { q.Continue = "garbage" }),
			codes.InvalidArgument, "^revision is required with continue"},
		{"Changes without a type", changes(func(q *resourcepb.ChangesRequest) { q.Type = nil }), codes.InvalidArgument, "^type is required"},
		{"Changes without a tenancy", changes(func(q *resourcepb.ChangesRequest) { q.Tenancy = nil }), codes.InvalidArgument,
			"^tenancy is required"},
		{"Changes of a name that is none", changes(func(q *resourcepb.ChangesRequest) { q.Name = "A" }), codes.InvalidArgument, "^name invalid"},
		{"Changes after nothing", changes(func(q *resourcepb.ChangesRequest) { q.After = 0 }), codes.InvalidArgument, "^after"},
		{"Changes that end before they begin", changes(func(q *resourcepb.ChangesRequest) { q.After, q.Until = 2, 1 }), codes.InvalidArgument,
			"^until"},
		{"Changes until a revision to come", changes(func(q *resourcepb.ChangesRequest) { q.Until = newest + ahead }), codes.OutOfRange,
			exactly(storage.ErrFutureRevision.Error())},
		{"Changes after a revision to come", changes(func(q *resourcepb.ChangesRequest) { q.After = newest + ahead }), codes.OutOfRange,
			exactly(storage.ErrFutureRevision.Error())},
		{"Revisions without a type", func(s *suite) error {
			return only(s.Revisions(s.ctx, &resourcepb.RevisionsRequest{Tenancy: anywhere}))
		}, codes.InvalidArgument, "^type is required"},
		{"Revisions without a tenancy", func(s *suite) error {
			return only(s.Revisions(s.ctx, &resourcepb.RevisionsRequest{Type: thing}))
		}, codes.InvalidArgument, "^tenancy is required"},
	}
	for what, call := range past {
		rows = append(rows, row{what + " of an unregistered type", func(s *suite) error { return call(s, s.ctx, unregistered) },
			codes.InvalidArgument, "not registered"})
	}
	s.refuse(rows)
}

// historyForgotten compacts the store.
func historyForgotten(s *suite) {
	h, ok := s.historian()
	if !ok {
		return
	}
	s.write(newThing("a", "one"))
	early := s.newest()
	s.write(newThing("a", "two"))
	now := s.newest()
	s.succeeds("Compact", h.Compact(s.ctx, now))
	at := func(revision int64) error {
		return only(s.ListAt(s.ctx, &resourcepb.ListAtRequest{Type: thing, Tenancy: anywhere, Revision: revision}))
	}
	from := func(revision int64) error {
		return only(s.changes(s.ctx, &resourcepb.ChangesRequest{Type: thing, Tenancy: anywhere, After: revision}))
	}
	s.fails("ListAt at a compacted revision", at(early), codes.OutOfRange, exactly(storage.ErrCompacted.Error()))
	s.fails("Changes after a compacted revision", from(early), codes.OutOfRange, exactly(storage.ErrCompacted.Error()))
	s.succeeds("ListAt at the oldest revision", at(now))
	s.succeeds("Changes after the oldest revision", from(now))
	answer, err := s.Revisions(s.ctx, &resourcepb.RevisionsRequest{Type: thing, Tenancy: anywhere})
	s.succeeds("Revisions", err)
	if answer.GetOldest() != now || answer.GetNewest() < now {
		s.Errorf("after a compaction up to %d the revisions are %s", now, text(answer))
	}
}

func historyCallers(s *suite) {
	s.write(newThing("a", "content"))
	if _, ok := s.historian(); !ok {
		return
	}
	var rows []row
	for what, call := range past {
		by := func(token string) func(*suite) error {
			return func(s *suite) error { return call(s, s.as(token), thing) }
		}
		rows = append(rows,
			row{what + " by nobody", by(nobody), codes.PermissionDenied, "nobody may not"},
			row{what + " by a stranger", by(stranger), codes.Unauthenticated, "unknown token"},
			row{what + " with an undecided hook", by(undecided), codes.Internal, internal},
			row{what + " with failing authentication", by(unsettled), codes.Internal, internal})
		s.succeeds(what+" by a reader", call(s, s.as(reader), thing))
	}
	s.refuse(rows)
}
