package servicetest

import (
	"bytes"
	"strings"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/ashlar-dev/storage/resourcepb"
)

var writeCases = topic{"Write", []testCase{
	{name: "Create", rules: []int{1}, run: writeCreate},
	{name: "Update", rules: []int{1}, run: writeUpdate},
	{name: "CreateRefused", rules: []int{1}, run: writeCreateRefused},
	{name: "CreateOnly", rules: []int{1, 24}, run: writeCreateOnly},
	{name: "UpdateRefused", rules: []int{1}, run: writeUpdateRefused},
	{name: "Payload", rules: []int{1}, run: writePayload},
	{name: "TTL", rules: []int{1, 28}, run: writeTTL},
	{name: "Owner", rules: []int{1}, run: writeOwner},
	{name: "MarkedTenancy", rules: []int{1}, run: writeMarkedTenancy},
	{name: "MutateAndValidate", rules: []int{1, 4}, run: writeValidate},
}}

// writes is a call that writes a resource.
func writes(res *resourcepb.Resource) func(*suite) error {
	return func(s *suite) error { return only(s.Write(s.ctx, &resourcepb.WriteRequest{Resource: res})) }
}

// validates is a call of MutateAndValidate for a resource.
func validates(res *resourcepb.Resource) func(*suite) error {
	return func(s *suite) error {
		return only(s.MutateAndValidate(s.ctx, &resourcepb.MutateAndValidateRequest{Resource: res}))
	}
}

func writeCreate(s *suite) {
	req := with(newThing("a", incomplete), "key", "value")
	req.Generation = "given" // the service generates its own
	written := s.write(req)
	want := with(newThing("a", complete), "key", "value")
	want.Id.Tenancy = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
	want.Id.Uid, want.Version, want.Generation = written.GetId().GetUid(), written.GetVersion(), written.GetGeneration()
	s.same("Write", written, want)
	s.same("Read", s.read(written.GetId()), want)
	for what, id := range map[string]string{"uid": written.GetId().GetUid(), "generation": written.GetGeneration()} {
		if _, err := ulid.ParseStrict(id); err != nil {
			s.Errorf("the %s %q is not a ULID: %v", what, id, err)
		}
	}
	if written.GetVersion() == "" {
		s.Error("the created resource has no version")
	}
	s.write(&resourcepb.Resource{Id: idOf(thing, "empty")}) // without data
}

func writeUpdate(s *suite) {
	first := s.write(with(newThing("a", "one"), "key", "value"))
	first = s.writeStatus(statusOf(first, "key", "message"))
	steps := []struct {
		name string
		req  *resourcepb.Resource
	}{
		{"by name", newThing("a", "two")},
		{"by uid", but(newThing("a", "three"), func(r *resourcepb.Resource) { r.Id.Uid = first.GetId().GetUid() })},
		{"the status that is stored", but(newThing("a", "four"), func(r *resourcepb.Resource) { r.Status = first.GetStatus() })},
		{"an empty status", but(newThing("a", "five"), func(r *resourcepb.Resource) { r.Status = map[string]*resourcepb.Status{} })},
		{"other metadata", with(newThing("a", "six"), "other", "value")},
	}
	for _, step := range steps {
		before := s.read(first.GetId())
		written := s.write(step.req)
		want := clone(step.req)
		want.Id, want.Status = first.GetId(), first.GetStatus()
		want.Version, want.Generation = written.GetVersion(), written.GetGeneration()
		s.same("Write, "+step.name, written, want)
		s.same("Read after Write, "+step.name, s.read(first.GetId()), want)
		if written.GetVersion() == before.GetVersion() {
			s.Errorf("Write, %s: the version did not change", step.name)
		}
	}
	current := s.read(first.GetId())
	current.Data = payload("at a version")
	if written := s.write(current); stringOf(written) != "at a version" {
		s.Errorf("Write at the stored version stores %s", text(written))
	}
}

func writeCreateRefused(s *suite) {
	s.refuse([]row{
		{"a status", writes(but(newThing("a", "content"), func(r *resourcepb.Resource) {
			r.Status = map[string]*resourcepb.Status{"key": {ObservedGeneration: stale}}
		})), codes.InvalidArgument, `^resource\.status`},
		{"a mark of deletion", writes(with(newThing("a", "content"), "deletionTimestamp", "2026-01-02T15:04:05Z")), codes.InvalidArgument,
			"deletionTimestamp"},
		{"a version", writes(but(newThing("a", "content"), func(r *resourcepb.Resource) { r.Version = "1" })), codes.Aborted,
			exactly(casFailure)},
		{"a uid", writes(but(newThing("a", "content"), func(r *resourcepb.Resource) { r.Id.Uid = stale })), codes.FailedPrecondition,
			exactly(wrongUid)},
		{"a uid and a version", writes(but(newThing("a", "content"), func(r *resourcepb.Resource) { r.Id.Uid, r.Version = stale, "1" })),
			codes.FailedPrecondition, exactly(wrongUid)},
		{"a resource that Validate rejects", writes(newThing("a", refused)), codes.InvalidArgument, exactly("a thing must be better than this")},
		{"a resource for which Mutate fails", writes(newThing("a", broken)), codes.Internal, "things cannot be completed today"},
		{"a resource that Mutate replaces", writes(newThing("a", meddled)), codes.Internal, "Mutate"},
		{"more than a resource may have", writes(newThing("a", strings.Repeat("x", 1<<20))), codes.ResourceExhausted, "."},
	})
}

// writeCreateOnly creates with the condition that nothing is stored, sequentially and concurrently.
func writeCreateOnly(s *suite) {
	creates := func(res *resourcepb.Resource) func(*suite) error {
		return func(s *suite) error {
			return only(s.Write(s.ctx, &resourcepb.WriteRequest{Resource: res, Create: true}))
		}
	}
	s.succeeds("creation", creates(newThing("a", "content"))(s))
	stored := s.write(newThing("b", "content"))
	s.refuse([]row{
		{"a resource created with create", creates(newThing("a", "other")), codes.Aborted, exactly(casFailure)},
		{"what is stored", creates(newThing("b", "other")), codes.Aborted, exactly(casFailure)},
		{"a stored resource in another group version", creates(&resourcepb.Resource{Id: idOf(thing2, "b"), Data: binary("")}), codes.Aborted,
			exactly(casFailure)},
		{"a stored resource, by its version", creates(but(newThing("b", "other"), func(r *resourcepb.Resource) { r.Version = stored.GetVersion() })),
			codes.InvalidArgument, `^resource\.version`},
		{"a stored resource, by its uid", creates(but(newThing("b", "other"), func(r *resourcepb.Resource) { r.Id.Uid = stored.GetId().GetUid() })),
			codes.InvalidArgument, `^resource\.id\.uid`},
		{"a uid where nothing is stored", creates(but(newThing("c", ""), func(r *resourcepb.Resource) { r.Id.Uid = stale })),
			codes.InvalidArgument, `^resource\.id\.uid`},
	})
	s.delete(stored.GetId())
	s.succeeds("creation of a deleted resource", creates(newThing("b", "again"))(s))

	var created atomic.Int64
	s.parallel(8, func(int) error {
		err := creates(newThing("contended", "content"))(s)
		if err == nil {
			created.Add(1)
		}
		if err == nil || status.Code(err) == codes.Aborted {
			return nil
		}
		return err
	})
	if n := created.Load(); n != 1 {
		s.Errorf("%d callers created one resource, expected 1", n)
	}
}

func writeUpdateRefused(s *suite) {
	stored := s.write(newThing("a", "content"))
	stored = s.writeStatus(statusOf(stored, "key", "message"))
	old := stored.GetVersion()
	stored = s.write(newThing("a", "newer"))
	update := func(change func(*resourcepb.Resource)) func(*suite) error {
		return writes(but(newThing("a", "newest"), change))
	}
	s.refuse([]row{
		{"an older version", update(func(r *resourcepb.Resource) { r.Version = old }), codes.Aborted, exactly(casFailure)},
		{"a version that never was", update(func(r *resourcepb.Resource) { r.Version = "garbage" }), codes.Aborted, exactly(casFailure)},
		{"another uid", update(func(r *resourcepb.Resource) { r.Id.Uid = stale }), codes.FailedPrecondition, exactly(wrongUid)},
		{"another uid at the stored version", update(func(r *resourcepb.Resource) { r.Id.Uid, r.Version = stale, stored.GetVersion() }),
			codes.FailedPrecondition, exactly(wrongUid)},
		{"another status", update(func(r *resourcepb.Resource) {
			r.Status = map[string]*resourcepb.Status{"key": but(stored.GetStatus()["key"], func(st *resourcepb.Status) { st.Conditions = nil })}
		}), codes.InvalidArgument, `^resource\.status`},
		{"another time in the status", update(func(r *resourcepb.Resource) {
			r.Status = map[string]*resourcepb.Status{"key": but(stored.GetStatus()["key"],
				func(st *resourcepb.Status) { st.UpdatedAt = timestamppb.Now() })}
		}), codes.InvalidArgument, `^resource\.status`},
		{"one status more", update(func(r *resourcepb.Resource) {
			r.Status = clone(stored).GetStatus()
			r.Status["more"] = &resourcepb.Status{ObservedGeneration: stale}
		}), codes.InvalidArgument, `^resource\.status`},
		{"a resource that Validate rejects", writes(newThing("a", refused)), codes.InvalidArgument, exactly("a thing must be better than this")},
		{"a resource for which Mutate fails", writes(newThing("a", broken)), codes.Internal, "things cannot be completed today"},
		{"a resource that Mutate replaces", writes(newThing("a", meddled)), codes.Internal, "Mutate"},
		{"more than a resource may have", writes(newThing("a", strings.Repeat("x", 1<<20))), codes.ResourceExhausted, "."},
	})
}

func writePayload(s *suite) {
	s.write(newThing("stored", "content"))
	for _, name := range []string{"stored", "new"} {
		for what, data := range map[string]*anypb.Any{
			"another type":                   binary("content"),
			"a type of no name":              {Value: []byte{1}},
			"an unknown type":                {TypeUrl: "type.googleapis.com/some.Ghost"},
			"a payload that does not decode": {TypeUrl: "type.googleapis.com/google.protobuf.StringValue", Value: bytes.Repeat([]byte{0xff}, 20)},
			"a text that is not UTF-8":       {TypeUrl: "type.googleapis.com/google.protobuf.StringValue", Value: []byte{0x0a, 1, 0xff}},
		} {
			res := newThing(name, "")
			res.Data = data
			s.refuse([]row{
				{"Write of " + what, writes(res), codes.InvalidArgument, `^resource\.data `},
				{"MutateAndValidate of " + what, validates(res), codes.InvalidArgument, `^resource\.data `},
			})
		}
	}
	// Only the part of the URL after the last slash matters.
	res := newThing("elsewhere", "content")
	res.Data.TypeUrl = "example.com/schemas/google.protobuf.StringValue"
	written := s.write(res)
	s.same("a payload with another URL", written.GetData(), res.GetData())
}

func writeOwner(s *suite) {
	owner, other := s.write(newThing("owner", "content")), s.write(newThing("other", "content"))
	cluster := s.write(newOf(planet, "owner"))
	owned := func(name string, by *resourcepb.ID) *resourcepb.Resource {
		res := newThing(name, "content")
		res.Owner = by
		return res
	}
	bare := but(owner.GetId(), func(id *resourcepb.ID) { id.Uid = "" })
	s.same("the owner, by name", s.write(owned("a", bare)).GetOwner(), owner.GetId())
	s.same("the owner, by uid", s.write(owned("b", owner.GetId())).GetOwner(), owner.GetId())
	s.same("the owner, not requested again", s.write(owned("a", bare)).GetOwner(), owner.GetId())
	s.same("the owner, again by uid", s.write(owned("a", owner.GetId())).GetOwner(), owner.GetId())
	s.same("an owner of another scope", s.write(owned("c",
		&resourcepb.ID{Type: planet, Name: "owner", Tenancy: &resourcepb.Tenancy{}})).GetOwner(), cluster.GetId())
	random := but(owner.GetId(), func(id *resourcepb.ID) { id.Uid = stale })
	s.same("an owner with a uid is stored as given", s.write(owned("d", random)).GetOwner(), random)
	s.write(newThing("free", "content"))

	missing := exactly("resource.owner does not exist")
	fixed := exactly("owner cannot be changed")
	s.refuse([]row{
		{"an absent owner", writes(owned("new", but(bare, func(id *resourcepb.ID) { id.Name = "nobody" }))), codes.InvalidArgument,
			missing},
		{"an owner in no tenancy", writes(owned("new", but(bare, func(id *resourcepb.ID) { id.Tenancy = nil }))), codes.InvalidArgument, missing},
		{"another owner", writes(owned("a", other.GetId())), codes.InvalidArgument, fixed},
		{"another owner by name", writes(owned("a", but(other.GetId(), func(id *resourcepb.ID) { id.Uid = "" }))), codes.InvalidArgument, fixed},
		{"another incarnation of the owner", writes(owned("a", random)), codes.InvalidArgument, fixed},
		{"the owner of another group version", writes(owned("a",
			but(owner.GetId(), func(id *resourcepb.ID) { id.Type.GroupVersion = "v2" }))), codes.InvalidArgument, fixed},
		{"the owner in another tenancy", writes(owned("a", but(owner.GetId(), func(id *resourcepb.ID) { id.Tenancy.Namespace = east }))),
			codes.InvalidArgument, fixed},
		{"no owner any more", writes(owned("a", nil)), codes.InvalidArgument, fixed},
		{"an owner of a resource without one", writes(owned("free", owner.GetId())), codes.InvalidArgument, fixed},
	})
}

func writeMarkedTenancy(s *suite) {
	marked := "^tenancy marked for deletion: ."
	for _, res := range []*resourcepb.Resource{in("", leaving, newThing("a", "content")), in(leaving, "", newThing("a", "content")),
		in(leaving, "", newOf(site, "a"))} {
		s.refuse([]row{
			{"Write in a tenancy marked for deletion", writes(res), codes.InvalidArgument, marked},
			{"MutateAndValidate in a tenancy marked for deletion", validates(res), codes.InvalidArgument, marked},
		})
	}
	// An existing resource can be deleted, including the steps of a deferred deletion.
	at := "2026-01-02T15:04:05Z"
	res := with(in("", leaving, newThing("old", "content")), "finalizers", "one two")
	res.Id.Tenancy.Partition, res.Id.Uid, res.Generation = "default", stale, stale
	if _, err := s.store.WriteCAS(s.ctx, res); err != nil {
		s.Fatal(err)
	}
	req := in("", leaving, with(newThing("old", "content"), "finalizers", "one two"))
	s.refuse([]row{{"an update in a tenancy marked for deletion", writes(in("", leaving, newThing("old", "other"))), codes.InvalidArgument,
		marked}})
	s.writeStatus(statusOf(res, "key", "message"))
	s.write(with(req, "deletionTimestamp", at))
	s.write(with(req, "deletionTimestamp", at, "finalizers", "two"))
	s.write(with(req, "deletionTimestamp", at, "finalizers", ""))
	if s.stored(res.GetId()) {
		s.Error("the last finalizer is removed, but the resource is still stored")
	}
}

func writeValidate(s *suite) {
	s.write(newThing("a", "content"))
	s.untouched("MutateAndValidate", func() {
		for _, name := range []string{"a", "b"} {
			req := with(newThing(name, incomplete), "key", "value")
			answer, err := s.MutateAndValidate(s.ctx, &resourcepb.MutateAndValidateRequest{Resource: req})
			s.succeeds("MutateAndValidate", err)
			want := clone(req)
			want.Id.Tenancy = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
			want.Data = payload(complete)
			s.same("MutateAndValidate", answer.GetResource(), want)
		}
		req := &resourcepb.Resource{Id: idOf(thing, "empty")}
		answer, err := s.MutateAndValidate(s.ctx, &resourcepb.MutateAndValidateRequest{Resource: req})
		s.succeeds("MutateAndValidate without data", err)
		if data := answer.GetResource().GetData(); data != nil {
			s.Errorf("MutateAndValidate without data answers with data %s", text(data))
		}
	})
	s.refuse([]row{
		{"a resource that Validate rejects", validates(newThing("a", refused)), codes.InvalidArgument, exactly("a thing must be better than this")},
		{"a resource for which Mutate fails", validates(newThing("a", broken)), codes.Internal, "things cannot be completed today"},
	})
}

func writeTTL(s *suite) {
	mortal := func(name string, ttl *durationpb.Duration) *resourcepb.Resource {
		return but(newThing(name, "content"), func(r *resourcepb.Resource) { r.Ttl = ttl })
	}
	expect := func(what string, res *resourcepb.Resource, ttl *durationpb.Duration) {
		s.Helper()
		if !proto.Equal(res.GetTtl(), ttl) || !proto.Equal(s.read(res.GetId()).GetTtl(), ttl) {
			s.Errorf("%s: the time to live is %v, expected %v", what, res.GetTtl(), ttl)
		}
	}
	minute := durationpb.New(time.Minute)
	a := s.write(mortal("a", minute))
	expect("after a creation", a, minute)
	status := &resourcepb.Status{ObservedGeneration: a.GetGeneration()}
	expect("after WriteStatus", s.writeStatus(&resourcepb.WriteStatusRequest{Id: a.GetId(), Key: "k", Status: status}), minute)
	expect("after a Write without one", s.write(mortal("a", nil)), nil)
	expect("after another Write", s.write(mortal("a", durationpb.New(time.Hour))), durationpb.New(time.Hour))
	b := s.write(with(mortal("b", minute), "finalizers", "one"))
	s.delete(b.GetId())
	expect("after the deletion mark", s.read(b.GetId()), nil)
	for what, ttl := range map[string]*durationpb.Duration{
		"0": {}, "a negative time": durationpb.New(-1), "11 years": durationpb.New(11 * 365 * 24 * time.Hour), "a malformed time": {Seconds: 1, Nanos: -1},
	} {
		s.refuse([]row{
			{"Write with a time to live of " + what, writes(mortal("a", ttl)), codes.InvalidArgument, `^resource\.ttl invalid: expected `},
			{"MutateAndValidate with a time to live of " + what, validates(mortal("a", ttl)), codes.InvalidArgument, `^resource\.ttl invalid: expected `},
		})
	}
}
