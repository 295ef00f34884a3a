package consul

import (
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
)

// DecodedResource is a resource with its decoded payload.
type DecodedResource[T proto.Message] struct {
	*resourcepb.Resource
	Data T
}

// GetData returns the payload.
func (d *DecodedResource[T]) GetData() T { return d.Data }

// Decode decodes the payload of a resource. It fails if the payload is another message.
func Decode[T proto.Message](res *resourcepb.Resource) (*DecodedResource[T], error) {
	var none T
	data := none.ProtoReflect().New().Interface().(T)
	if err := res.GetData().UnmarshalTo(data); err != nil {
		return nil, err
	}
	return &DecodedResource[T]{res, data}, nil
}

// Reference returns a reference to a section of a resource, "" for all of it.
func Reference(id *resourcepb.ID, section string) *resourcepb.Reference {
	return &resourcepb.Reference{Type: id.GetType(), Tenancy: id.GetTenancy(), Name: id.GetName(), Section: section}
}

// EqualStatus reports whether two statuses are equal. The times of their last updates count only if compareUpdatedAt is set.
func EqualStatus(a, b *resourcepb.Status, compareUpdatedAt bool) bool {
	if !compareUpdatedAt {
		a, b = withoutTime(a), withoutTime(b)
	}
	return proto.Equal(a, b)
}

// withoutTime returns a copy of a status without the time of its last update.
func withoutTime(s *resourcepb.Status) *resourcepb.Status {
	if s == nil {
		return nil
	}
	s = proto.CloneOf(s)
	s.UpdatedAt = nil
	return s
}
