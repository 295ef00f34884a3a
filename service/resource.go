package service

import (
	"cmp"
	"maps"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// idIn returns an id with another tenancy. It shares the type with id.
func idIn(tenancy *resourcepb.Tenancy, id *resourcepb.ID) *resourcepb.ID {
	return &resourcepb.ID{Uid: id.GetUid(), Name: id.GetName(), Type: id.GetType(), Tenancy: tenancy}
}

// compareKeys compares the keys of two ids in list order.
func compareKeys(a, b *resourcepb.ID) int {
	return cmp.Or(
		cmp.Compare(a.GetType().GetGroup(), b.GetType().GetGroup()),
		cmp.Compare(a.GetType().GetKind(), b.GetType().GetKind()),
		cmp.Compare(a.GetTenancy().GetPartition(), b.GetTenancy().GetPartition()),
		cmp.Compare(a.GetTenancy().GetNamespace(), b.GetTenancy().GetNamespace()),
		cmp.Compare(a.GetName(), b.GetName()),
	)
}

// copyOf returns a shallow copy of a resource.
func copyOf(res *resourcepb.Resource) *resourcepb.Resource {
	return codec.WithVersion(res, res.GetVersion())
}

// equalStatus reports whether two resources have the same statuses.
func equalStatus(a, b *resourcepb.Resource) bool {
	return maps.EqualFunc(a.GetStatus(), b.GetStatus(), func(a, b *resourcepb.Status) bool { return proto.Equal(a, b) })
}
