package compat

import (
	"context"
	"testing"

	catalog "github.com/hashicorp/consul/proto-public/pbcatalog/v2beta1"
	"github.com/hashicorp/consul/proto-public/pbresource"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
)

// packed returns a message as the payload of a resource.
func packed(m proto.Message) *anypb.Any {
	data, err := anypb.New(m)
	if err != nil {
		panic(err)
	}
	return data
}

// newService returns a service with a virtual address.
func newService(name, ip string) *pbresource.Resource {
	return &pbresource.Resource{
		Id:   &pbresource.ID{Type: serviceType, Name: name},
		Data: packed(&catalog.Service{VirtualIps: []string{ip}}),
	}
}

// newWorkload returns a workload of a node.
func newWorkload(name, node, identity string) *pbresource.Resource {
	return &pbresource.Resource{
		Id:   &pbresource.ID{Type: workloadType, Name: name},
		Data: packed(&catalog.Workload{NodeName: node, Identity: identity}),
	}
}

// write writes a resource, and fails the test if that fails.
func (s *server) write(ctx context.Context, t *testing.T, res *pbresource.Resource) *pbresource.Resource {
	t.Helper()
	written, err := s.Write(ctx, &pbresource.WriteRequest{Resource: res})
	if err != nil {
		t.Fatalf("write %s: %v", res.GetId().GetName(), err)
	}
	return written.GetResource()
}

// read reads a resource, and fails the test if that fails.
func (s *server) read(ctx context.Context, t *testing.T, id *pbresource.ID) *pbresource.Resource {
	t.Helper()
	read, err := s.Read(ctx, &pbresource.ReadRequest{Id: id})
	if err != nil {
		t.Fatalf("read %s: %v", id.GetName(), err)
	}
	return read.GetResource()
}

// copied returns a modified copy of a message.
func copied[M proto.Message](m M, change func(M)) M {
	c := proto.CloneOf(m)
	change(c)
	return c
}

// equal compares two messages.
func equal(t *testing.T, what string, got, want proto.Message) {
	t.Helper()
	if !proto.Equal(got, want) {
		t.Errorf("%s: got\n\t%v\nexpected\n\t%v", what, got, want)
	}
}

// list lists resources.
func (s *server) list(ctx context.Context, t *testing.T, req *pbresource.ListRequest) []*pbresource.Resource {
	t.Helper()
	listed, err := s.List(ctx, req)
	if err != nil {
		t.Fatalf("list %v: %v", req, err)
	}
	return listed.GetResources()
}

// sameResources compares lists of resources, in their order.
func sameResources(t *testing.T, what string, got, want []*pbresource.Resource) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: got %d resources, expected %d:\n\t%v", what, len(got), len(want), got)
		return
	}
	for i := range want {
		equal(t, what, got[i], want[i])
	}
}
