package servicetest

import (
	"errors"
	"fmt"
	"maps"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// idOf returns the id of a resource of a type, without tenancy.
func idOf(t *resourcepb.Type, name string) *resourcepb.ID {
	return &resourcepb.ID{Type: clone(t), Name: name}
}

// newThing returns a thing as a user would first write it.
func newThing(name, content string) *resourcepb.Resource {
	return &resourcepb.Resource{Id: idOf(thing, name), Data: payload(content)}
}

// newOf is newThing for another type with a string payload.
func newOf(t *resourcepb.Type, name string) *resourcepb.Resource {
	return &resourcepb.Resource{Id: idOf(t, name), Data: payload("content")}
}

// in returns the resource in another tenancy.
func in(partition, namespace string, res *resourcepb.Resource) *resourcepb.Resource {
	res.Id.Tenancy = &resourcepb.Tenancy{Partition: partition, Namespace: namespace}
	return res
}

// with returns a copy of the resource with additional metadata.
func with(res *resourcepb.Resource, pairs ...string) *resourcepb.Resource {
	res = clone(res)
	m := maps.Clone(res.GetMetadata())
	if m == nil {
		m = map[string]string{}
	}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	res.Metadata = m
	return res
}

// but returns a modified copy of a message.
func but[M proto.Message](m M, change func(M)) M {
	m = clone(m)
	change(m)
	return m
}

func payload(text string) *anypb.Any {
	data, err := anypb.New(wrapperspb.String(text))
	if err != nil {
		panic(err) // a string always encodes
	}
	return data
}

func binary(text string) *anypb.Any {
	data, err := anypb.New(wrapperspb.Bytes([]byte(text)))
	if err != nil {
		panic(err) // bytes always encode
	}
	return data
}

// write writes a resource, and fails the case if that fails.
func (s *suite) write(res *resourcepb.Resource) *resourcepb.Resource {
	s.Helper()
	answer, err := s.Write(s.ctx, &resourcepb.WriteRequest{Resource: res})
	if err != nil {
		s.Fatalf("Write of %s: %v", text(res), err)
	}
	return answer.GetResource()
}

// read reads a resource, and fails the case if that fails.
func (s *suite) read(id *resourcepb.ID) *resourcepb.Resource {
	s.Helper()
	answer, err := s.Read(s.ctx, &resourcepb.ReadRequest{Id: id})
	if err != nil {
		s.Fatalf("Read of %s: %v", text(id), err)
	}
	return answer.GetResource()
}

// delete deletes a resource at any version, and fails the case if that fails.
func (s *suite) delete(id *resourcepb.ID) {
	s.Helper()
	if _, err := s.Delete(s.ctx, &resourcepb.DeleteRequest{Id: id}); err != nil {
		s.Fatalf("Delete of %s: %v", text(id), err)
	}
}

// writeStatus writes a status, and fails the case if that fails.
func (s *suite) writeStatus(req *resourcepb.WriteStatusRequest) *resourcepb.Resource {
	s.Helper()
	answer, err := s.WriteStatus(s.ctx, req)
	if err != nil {
		s.Fatalf("WriteStatus of %s: %v", text(req), err)
	}
	return answer.GetResource()
}

// statusOf returns a request to write a status of a stored resource.
func statusOf(res *resourcepb.Resource, key, message string) *resourcepb.WriteStatusRequest {
	return &resourcepb.WriteStatusRequest{Id: clone(res.GetId()), Key: key, Status: &resourcepb.Status{
		ObservedGeneration: res.GetGeneration(),
		Conditions:         []*resourcepb.Condition{{Type: "Ready", State: resourcepb.Condition_STATE_TRUE, Message: message}},
	}}
}

// list lists the resources of a type directly from the store.
func (s *suite) list(t storage.UnversionedType) []*resourcepb.Resource {
	s.Helper()
	all, err := s.store.List(s.ctx, strong, t, anywhere, "")
	s.succeeds("list the store", err)
	return all
}

// untouched runs f and checks that it did not change the store.
func (s *suite) untouched(what string, f func()) {
	s.Helper()
	before := s.list(everything)
	f()
	if err := difference(s.list(everything), before); err != nil {
		s.Fatalf("%s changes the store: %v", what, err)
	}
}

// difference describes the first difference of two lists.
func difference(got, want []*resourcepb.Resource) error {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("%d resources instead of %d: missing is %s", len(got), len(want), text(want[i]))
		case i >= len(want):
			return fmt.Errorf("%d resources instead of %d: too many is %s", len(got), len(want), text(got[i]))
		case !proto.Equal(got[i], want[i]):
			return fmt.Errorf("resource %d of %d:\n got %s\nwant %s", i+1, len(want), text(got[i]), text(want[i]))
		}
	}
	return nil
}

// stored reports whether the store has a resource under the key of an id.
func (s *suite) stored(id *resourcepb.ID) bool {
	s.Helper()
	bare := clone(id)
	bare.Uid = ""
	_, err := s.store.Read(s.ctx, strong, bare)
	if errors.Is(err, storage.ErrNotFound) {
		return false
	}
	if mismatch := (storage.GroupVersionMismatchError{}); err != nil && !errors.As(err, &mismatch) {
		s.Fatalf("read the stored resource: %v", err)
	}
	return true
}
