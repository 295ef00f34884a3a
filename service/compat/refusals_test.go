package compat

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/consul/proto-public/pbresource"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// The texts that clients compare, byte for byte.
const (
	notFound  = "resource not found"
	casFailed = "CAS operation failed because the given version doesn't match what is stored"
	wrongUid  = "write failed because the given uid doesn't match what is stored"
)

// otherUid is a uid that no resource has.
const otherUid = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

// refusal is a rejected call with the expected error.
type refusal struct {
	name string
	// given is the stored resource, nil for none. Its name is changed.
	given *pbresource.Resource
	// call makes the call. at is the stored resource, or an unstored one if given is nil.
	call func(ctx context.Context, s *server, at *pbresource.Resource) error
	code codes.Code
	// text is the expected text, or its beginning if it ends with '…'.
	text string
}

// refused makes rejected calls and checks that they do not change the store.
func refused(t *testing.T, refusals []refusal) {
	t.Helper()
	onEachStore(t, func(t *testing.T, s *server) {
		for i, r := range refusals {
			t.Run(r.name, func(t *testing.T) {
				ctx := limited(t)
				at := newService("", "10.0.0.1")
				if r.given != nil {
					at = copied(r.given, func(*pbresource.Resource) {})
				}
				at.Id.Name = fmt.Sprintf("case-%d", i)
				id := copied(at.GetId(), func(*pbresource.ID) {})
				if r.given != nil {
					at = s.write(ctx, t, at)
				}
				err := r.call(ctx, s, copied(at, func(*pbresource.Resource) {}))
				text := status.Convert(err).Message()
				begin, abridged := strings.CutSuffix(r.text, "…")
				if status.Code(err) != r.code || (abridged && !strings.HasPrefix(text, begin)) || (!abridged && text != r.text) {
					t.Errorf("the server answered %v %q, expected %v %q", status.Code(err), text, r.code, r.text)
				}
				stored, err := s.Read(ctx, &pbresource.ReadRequest{Id: id})
				if r.given != nil {
					equal(t, "the stored resource after the rejection", stored.GetResource(), at)
				} else if status.Code(err) != codes.NotFound {
					t.Errorf("after the rejection %v is stored (%v), expected nothing", stored, err)
				}
			})
		}
	})
}

// malformed returns the rejections of malformed ids. field is the name of the id in errors; call makes a call with the id.
func malformed(field string, call func(context.Context, *server, *pbresource.ID) error) (all []refusal) {
	add := func(name, text string, change func(*pbresource.ID)) {
		all = append(all, refusal{name: name, code: codes.InvalidArgument, text: text,
			call: func(ctx context.Context, s *server, at *pbresource.Resource) error {
				return call(ctx, s, copied(at.GetId(), func(id *pbresource.ID) {
					id.Uid = otherUid // for methods that require it
					change(id)
				}))
			}})
	}
	in := func(partition, namespace string) *pbresource.Tenancy {
		return &pbresource.Tenancy{Partition: partition, Namespace: namespace}
	}
	all = append(all, refusal{name: "no id", code: codes.InvalidArgument, text: field + " is required",
		call: func(ctx context.Context, s *server, _ *pbresource.Resource) error { return call(ctx, s, nil) }})
	add("no type", field+".type is required", func(id *pbresource.ID) { id.Type = nil })
	add("no name", field+".name invalid: …", func(id *pbresource.ID) { id.Name = "" })
	add("name in upper case", field+".name invalid: …", func(id *pbresource.ID) { id.Name = "Web" })
	add("name too long", field+".name invalid: …", func(id *pbresource.ID) { id.Name = strings.Repeat("n", 64) })
	add("partition in upper case", field+".tenancy.partition invalid: …", func(id *pbresource.ID) { id.Tenancy = in("Default", "") })
	long := strings.Repeat("n", 64)
	add("namespace too long", field+".tenancy.namespace invalid: …", func(id *pbresource.ID) { id.Tenancy = in("", long) })
	return all
}

// misplaced returns the rejections of ids with unregistered types, and with tenancies outside the scope of their type.
func misplaced(call func(context.Context, *server, *pbresource.ID) error) (all []refusal) {
	add := func(name, text string, id *pbresource.ID) {
		id.Uid, id.Name = otherUid, "n"
		all = append(all, refusal{name: name, code: codes.InvalidArgument, text: text,
			call: func(ctx context.Context, s *server, _ *pbresource.Resource) error { return call(ctx, s, id) }})
	}
	of := func(t *pbresource.Type, partition, namespace string) *pbresource.ID {
		return &pbresource.ID{Type: t, Tenancy: &pbresource.Tenancy{Partition: partition, Namespace: namespace}}
	}
	nothing := &pbresource.Type{Group: "catalog", GroupVersion: "v9", Kind: "Nothing"}
	add("type not registered", "resource type catalog.v9.Nothing not registered", &pbresource.ID{Type: nothing})
	add("namespace of a partition-scoped type",
		"partition scoped resource tenancy.v2beta1.Namespace cannot have a namespace. got: ns", of(namespaceType, "default", "ns"))
	add("partition of a cluster-scoped type",
		"cluster scoped resource tenancy.v2beta1.Partition cannot have a partition: pt", of(partitionType, "pt", ""))
	add("namespace of a cluster-scoped type",
		"cluster scoped resource tenancy.v2beta1.Partition cannot have a namespace: ns", of(partitionType, "", "ns"))
	return all
}
