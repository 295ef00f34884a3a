package typed

import (
	"fmt"

	"github.com/ashlar-dev/storage/resourcepb"
)

// NewType returns a resource type, for example NewType("shop", "v1", "Service").
func NewType(group, groupVersion, kind string) *resourcepb.Type {
	return &resourcepb.Type{Group: group, GroupVersion: groupVersion, Kind: kind}
}

// NewTenancy returns a tenancy. In lists and watches each unit may be [storage.Wildcard].
func NewTenancy(partition, namespace string) *resourcepb.Tenancy {
	return &resourcepb.Tenancy{Partition: partition, Namespace: namespace}
}

// idString formats an id for errors.
func idString(id *resourcepb.ID) string {
	return fmt.Sprintf("%s/%s %q in %q/%q", id.GetType().GetGroup(), id.GetType().GetKind(), id.GetName(),
		id.GetTenancy().GetPartition(), id.GetTenancy().GetNamespace())
}
