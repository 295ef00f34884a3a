package servicetest

import (
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ashlar-dev/storage/resourcepb"
)

var statusCases = topic{"WriteStatus", []testCase{
	{name: "Replaces", rules: []int{1, 6}, run: statusReplaces},
	{name: "Refused", rules: []int{1}, run: statusRefused},
}}

func statusReplaces(s *suite) {
	res := s.write(with(newThing("a", "content"), "key", "value"))
	began := time.Now().Add(-time.Minute) // tolerates different clocks
	one := s.writeStatus(statusOf(res, "one", "first"))
	two := s.writeStatus(statusOf(res, "two", "second"))
	again := s.writeStatus(statusOf(res, "one", "third"))
	if at := again.GetStatus()["one"].GetUpdatedAt().AsTime(); at.Before(began) {
		s.Errorf("the status has the time %v, expected a time after its write began", at)
	}
	want := clone(two)
	want.Version = again.GetVersion()
	want.Status["one"] = statusOf(res, "one", "third").GetStatus()
	want.Status["one"].UpdatedAt = again.GetStatus()["one"].GetUpdatedAt()
	s.same("WriteStatus", again, want)
	s.same("Read after WriteStatus", s.read(res.GetId()), want)
	if one.GetVersion() == two.GetVersion() || two.GetVersion() == again.GetVersion() || res.GetVersion() == one.GetVersion() {
		s.Error("two writes of statuses returned the same version")
	}
	// The observed generation is not checked, and a status may have no other field.
	req := statusOf(again, "two", "")
	req.Version, req.Status.ObservedGeneration, req.Status.Conditions = again.GetVersion(), stale, nil
	if st := s.writeStatus(req).GetStatus()["two"]; len(st.GetConditions()) != 0 || st.GetObservedGeneration() != stale {
		s.Errorf("a status is not replaced as a whole: %s", text(st))
	}
	// A condition may refer to a resource of any scope.
	for _, tenancy := range []*resourcepb.Tenancy{{}, {Partition: "default"}, {Partition: "default", Namespace: "default"}} {
		req := statusOf(res, "about", "")
		req.Status.Conditions[0].Resource = &resourcepb.Reference{Type: thing, Tenancy: tenancy, Name: "b"}
		s.writeStatus(req)
	}
}

func statusRefused(s *suite) {
	res := s.write(newThing("a", "content"))
	old := res.GetVersion()
	res = s.write(newThing("a", "newer"))
	change := func(change func(*resourcepb.WriteStatusRequest)) func(*suite) error {
		req := but(statusOf(res, "key", "message"), change)
		return func(s *suite) error { return only(s.WriteStatus(s.ctx, req)) }
	}
	about := func(r *resourcepb.Reference) func(*suite) error {
		return change(func(q *resourcepb.WriteStatusRequest) { q.Status.Conditions[0].Resource = r })
	}
	ref := &resourcepb.Reference{Type: thing, Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"}, Name: "b"}
	const bad = codes.InvalidArgument
	s.refuse([]row{
		{"no uid", change(func(q *resourcepb.WriteStatusRequest) { q.Id.Uid = "" }), bad, exactly("id.uid is required")},
		{"no key", change(func(q *resourcepb.WriteStatusRequest) { q.Key = "" }), bad, exactly("key is required")},
		{"no status", change(func(q *resourcepb.WriteStatusRequest) { q.Status = nil }), bad, exactly("status is required")},
		{"no observed generation", change(func(q *resourcepb.WriteStatusRequest) { q.Status.ObservedGeneration = "" }), bad,
			exactly("status.observed_generation is required")},
		{"an observed generation that is not a ULID", change(func(q *resourcepb.WriteStatusRequest) { q.Status.ObservedGeneration = "bogus" }),
			bad, `^status\.observed_generation .`},
		{"an observed generation of letters no ULID has",
			change(func(q *resourcepb.WriteStatusRequest) { q.Status.ObservedGeneration = "01JUUUUUUUUUUUUUUUUUUUUUUU" }),
			bad, `^status\.observed_generation .`},
		{"a time", change(func(q *resourcepb.WriteStatusRequest) { q.Status.UpdatedAt = timestamppb.Now() }), bad,
			exactly("status.updated_at is automatically set and cannot be provided")},
		{"a condition of no type", change(func(q *resourcepb.WriteStatusRequest) { q.Status.Conditions[0].Type = "" }), bad,
			exactly("status.conditions[0].type is required")},
		{"a second condition of no type", change(func(q *resourcepb.WriteStatusRequest) {
			q.Status.Conditions = append(q.Status.Conditions, &resourcepb.Condition{})
		}), bad, exactly("status.conditions[1].type is required")},
		{"about no type", about(but(ref, func(r *resourcepb.Reference) { r.Type = nil })), bad,
			exactly("status.conditions[0].resource.type is required")},
		{"about no tenancy", about(but(ref, func(r *resourcepb.Reference) { r.Tenancy = nil })), bad,
			exactly("status.conditions[0].resource.tenancy is required")},
		{"about no name", about(but(ref, func(r *resourcepb.Reference) { r.Name = "" })), bad,
			`^status\.conditions\[0\]\.resource\.name (is required|invalid)`},
		{"about a bad name", about(but(ref, func(r *resourcepb.Reference) { r.Name = "-" })), bad,
			`^status\.conditions\[0\]\.resource\.name invalid: .`},
		{"about a bad partition", about(but(ref, func(r *resourcepb.Reference) { r.Tenancy.Partition = "-" })), bad,
			`^status\.conditions\[0\]\.resource\.tenancy\.partition invalid: .`},
		{"about a bad namespace", about(but(ref, func(r *resourcepb.Reference) { r.Tenancy.Namespace = "-" })), bad,
			`^status\.conditions\[0\]\.resource\.tenancy\.namespace invalid: .`},
		{"nothing stored", change(func(q *resourcepb.WriteStatusRequest) { q.Id.Name = "b" }), codes.NotFound, exactly(notFound)},
		{"nothing stored, at a version", change(func(q *resourcepb.WriteStatusRequest) { q.Id.Name, q.Version = "b", old }), codes.NotFound,
			exactly(notFound)},
		{"another uid", change(func(q *resourcepb.WriteStatusRequest) { q.Id.Uid = stale }), codes.NotFound, exactly(notFound)},
		{"another uid at the stored version", change(func(q *resourcepb.WriteStatusRequest) {
			q.Id.Uid, q.Version = stale,
				res.GetVersion()
		}), codes.NotFound, exactly(notFound)},
		{"an older version", change(func(q *resourcepb.WriteStatusRequest) { q.Version = old }), codes.Aborted, exactly(casFailure)},
		{"a version that never was", change(func(q *resourcepb.WriteStatusRequest) { q.Version = "garbage" }), codes.Aborted,
			exactly(casFailure)},
		{"another group version", change(func(q *resourcepb.WriteStatusRequest) { q.Id.Type = thing2 }), bad, "v1"},
	})
}
