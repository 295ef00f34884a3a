package servicetest

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage/resourcepb"
)

// row is a call that fails with a code and a text that matches a regular expression.
type row struct {
	name     string
	call     func(s *suite) error
	code     codes.Code
	wantText string
}

// refuse checks that each row fails and does not change the store.
func (s *suite) refuse(rows []row) {
	s.Helper()
	before := s.list(everything)
	for _, r := range rows {
		if wrong := mismatch(r.call(s), r.code, r.wantText); wrong != "" {
			s.Errorf("%s: %s", r.name, wrong)
		}
		after := s.list(everything)
		if err := difference(after, before); err != nil {
			s.Errorf("%s changes the store: %v", r.name, err)
		}
		before = after
	}
}

// only returns the error of a call.
func only[A any](_ A, err error) error { return err }

// watched opens a stream and returns its error, from opening it or with the first event.
func (s *suite) watched(ctx context.Context, req *resourcepb.WatchListRequest) error {
	ctx, cancel := context.WithTimeout(ctx, s.h.Timeout)
	defer cancel()
	stream, err := s.WatchList(ctx, req)
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

// method is a method whose request has the id of a resource.
type method struct {
	name  string
	field string // the name of the id in errors
	call  func(s *suite, ctx context.Context, id *resourcepb.ID) error
}

// stale is a uid that no server of the suite has generated.
const stale = "01JZZZZZZZZZZZZZZZZZZZZZZZ"

// methods has all methods whose requests have an id.
var methods = []method{
	{"Read", "id", func(s *suite, ctx context.Context, id *resourcepb.ID) error {
		return only(s.Read(ctx, &resourcepb.ReadRequest{Id: id}))
	}},
	{"Write", "resource.id", func(s *suite, ctx context.Context, id *resourcepb.ID) error {
		return only(s.Write(ctx, &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: id, Data: payload("content")}}))
	}},
	{"MutateAndValidate", "resource.id", func(s *suite, ctx context.Context, id *resourcepb.ID) error {
		return only(s.MutateAndValidate(ctx, &resourcepb.MutateAndValidateRequest{Resource: &resourcepb.Resource{Id: id,
			Data: payload("content")}}))
	}},
	{"WriteStatus", "id", func(s *suite, ctx context.Context, id *resourcepb.ID) error {
		return only(s.WriteStatus(ctx, statusOf(&resourcepb.Resource{Id: withUid(id), Generation: stale}, "key", "")))
	}},
	{"Delete", "id", func(s *suite, ctx context.Context, id *resourcepb.ID) error {
		return only(s.Delete(ctx, &resourcepb.DeleteRequest{Id: id}))
	}},
	{"ListByOwner", "owner", func(s *suite, ctx context.Context, id *resourcepb.ID) error {
		return only(s.ListByOwner(ctx, &resourcepb.ListByOwnerRequest{Owner: withUid(id)}))
	}},
}

// withUid returns an id with a uid.
func withUid(id *resourcepb.ID) *resourcepb.ID {
	if id == nil || id.GetUid() != "" {
		return id
	}
	id = clone(id)
	id.Uid = stale
	return id
}
