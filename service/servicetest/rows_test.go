package servicetest

import (
	"context"

	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage/resourcepb"
)

// A row is a call that is refused: its error has that code, and a text that matches the regular expression.
type row struct {
	name string
	call func(s *suite) error
	code codes.Code
	says string
}

// refuse demands that each row is refused and leaves no trace in the store.
func (s *suite) refuse(rows []row) {
	s.Helper()
	before := s.list(everything)
	for _, r := range rows {
		if wrong := mismatch(r.call(s), r.code, r.says); wrong != "" {
			s.Errorf("%s: %s", r.name, wrong)
		}
		after := s.list(everything)
		if err := difference(after, before); err != nil {
			s.Errorf("%s leaves a trace in the store: %v", r.name, err)
		}
		before = after
	}
}

// only returns the error of a call.
func only[A any](_ A, err error) error { return err }

// watched opens a stream and returns the error of its first event, which comes with the stream or after it.
func (s *suite) watched(ctx context.Context, req *resourcepb.WatchListRequest) error {
	ctx, cancel := context.WithTimeout(ctx, s.h.Patience)
	defer cancel()
	stream, err := s.WatchList(ctx, req)
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

// A method is one that names a resource by its id.
type method struct {
	name  string
	field string // as errors call the id
	call  func(s *suite, ctx context.Context, id *resourcepb.ID) error
}

// stale is a uid that no server of the suite has made.
const stale = "01JZZZZZZZZZZZZZZZZZZZZZZZ"

// methods are all that name a resource by its id.
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
