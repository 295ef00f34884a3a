package codec

import (
	"bytes"
	"maps"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Clone returns a deep copy of res. It is proto.Clone without reflection, because the copy, and not the lookup, is most of the cost
// of a read from memory.
func Clone(res *resourcepb.Resource) *resourcepb.Resource {
	if res == nil {
		return nil
	}
	// One allocation for the messages of nearly every resource.
	parts := &struct {
		res  resourcepb.Resource
		id   idParts
		data anypb.Any
	}{}
	out := &parts.res
	out.Id = parts.id.clone(res.Id)
	out.Owner = CloneID(res.Owner)
	out.Version = res.Version
	out.Generation = res.Generation
	out.Author = res.Author
	out.Metadata = maps.Clone(res.Metadata)
	if res.Status != nil {
		out.Status = make(map[string]*resourcepb.Status, len(res.Status))
		for k, status := range res.Status {
			out.Status[k] = proto.CloneOf(status)
		}
	}
	if res.Ttl != nil {
		out.Ttl = proto.CloneOf(res.Ttl)
	}
	if res.Data != nil {
		out.Data = &parts.data
		out.Data.TypeUrl, out.Data.Value = res.Data.TypeUrl, bytes.Clone(res.Data.Value)
		cloneUnknown(out.Data, res.Data)
	}
	cloneUnknown(out, res)
	return out
}

// idParts is an id with its messages.
type idParts struct {
	id      resourcepb.ID
	typ     resourcepb.Type
	tenancy resourcepb.Tenancy
}

// CloneID returns a deep copy of id.
func CloneID(id *resourcepb.ID) *resourcepb.ID {
	if id == nil {
		return nil
	}
	return new(idParts).clone(id)
}

func (p *idParts) clone(id *resourcepb.ID) *resourcepb.ID {
	if id == nil {
		return nil
	}
	out := &p.id
	out.Uid, out.Name = id.Uid, id.Name
	if t := id.Type; t != nil {
		out.Type = &p.typ
		out.Type.Group, out.Type.GroupVersion, out.Type.Kind = t.Group, t.GroupVersion, t.Kind
		cloneUnknown(out.Type, t)
	}
	if t := id.Tenancy; t != nil {
		out.Tenancy = &p.tenancy
		out.Tenancy.Partition, out.Tenancy.Namespace = t.Partition, t.Namespace
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
