package message

import (
	"bytes"
	"maps"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Clone returns a deep copy of res. It does what proto.Clone does, field by field instead of by reflection, because a clone
// and not the look-up is most of what a read from memory costs.
func Clone(res *resourcepb.Resource) *resourcepb.Resource {
	if res == nil {
		return nil
	}
	out := &resourcepb.Resource{
		Id:         CloneID(res.Id),
		Owner:      CloneID(res.Owner),
		Version:    res.Version,
		Generation: res.Generation,
		Metadata:   maps.Clone(res.Metadata),
	}
	if res.Status != nil {
		out.Status = make(map[string]*resourcepb.Status, len(res.Status))
		for k, status := range res.Status {
			out.Status[k] = proto.CloneOf(status)
		}
	}
	if res.Data != nil {
		out.Data = &anypb.Any{TypeUrl: res.Data.TypeUrl, Value: bytes.Clone(res.Data.Value)}
		cloneUnknown(out.Data, res.Data)
	}
	cloneUnknown(out, res)
	return out
}

// CloneID returns a deep copy of id.
func CloneID(id *resourcepb.ID) *resourcepb.ID {
	if id == nil {
		return nil
	}
	out := &resourcepb.ID{Uid: id.Uid, Name: id.Name}
	if t := id.Type; t != nil {
		out.Type = &resourcepb.Type{Group: t.Group, GroupVersion: t.GroupVersion, Kind: t.Kind}
		cloneUnknown(out.Type, t)
	}
	if t := id.Tenancy; t != nil {
		out.Tenancy = &resourcepb.Tenancy{Partition: t.Partition, Namespace: t.Namespace}
		cloneUnknown(out.Tenancy, t)
	}
	cloneUnknown(out, id)
	return out
}

func cloneUnknown(to, from proto.Message) {
	if unknown := from.ProtoReflect().GetUnknown(); len(unknown) > 0 {
		to.ProtoReflect().SetUnknown(bytes.Clone(unknown))
	}
}
