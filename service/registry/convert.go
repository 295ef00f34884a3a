package registry

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Stored returns the name of the type in whose group version the resources of t are stored: its own without a Conversion. It is shared and must not be
// modified.
func (t *Type) Stored() *resourcepb.Type {
	if t.versions == nil {
		return t.Type
	}
	return t.versions.stored.Type
}

// Converts reports whether a resource that is stored with a type is read as t by a conversion. The kinds are the same.
func (t *Type) Converts(stored *resourcepb.Type) bool {
	return t.versions != nil && t.versions.all[stored.GetGroupVersion()] != nil
}

// FromStored returns a resource of the store as a resource of type t. The result may share memory with it. A resource that is stored in a served group
// version, because it was written before the stored version existed, is converted to the stored version first. FromStored fails with a
// *ConversionError. It returns resources of t, and of types that do not convert to t, unchanged.
func (t *Type) FromStored(res *resourcepb.Resource) (*resourcepb.Resource, error) {
	from := res.GetId().GetType().GetGroupVersion()
	if !t.Converts(res.GetId().GetType()) || from == t.Type.GetGroupVersion() {
		return res, nil
	}
	res, err := t.versions.toStored(res)
	if err != nil || t == t.versions.stored {
		return res, err
	}
	out := withType(res, t.Type)
	if res.GetData() == nil {
		return out, nil
	}
	if out.Data, err = t.payloadFromStored(res.GetData()); err != nil {
		return nil, &ConversionError{ID: res.GetId(), From: from, To: t.Type.GetGroupVersion(), Err: err}
	}
	return out, nil
}

// ToStored returns a resource of type t in the stored group version. current is the resource of the store that it replaces, nil for none; what only that
// has is kept. The result shares memory with the arguments. ToStored fails with a *ConversionError.
func (t *Type) ToStored(written, current *resourcepb.Resource) (*resourcepb.Resource, error) {
	if t.versions == nil || t == t.versions.stored {
		return written, nil
	}
	shown, err := t.FromStored(current)
	if err != nil {
		return nil, err
	}
	if current, err = t.versions.toStored(current); err != nil {
		return nil, err
	}
	out := withType(written, t.Stored())
	if written.GetData() == nil {
		return out, nil
	}
	if out.Data, err = t.payloadToStored(written.GetData(), shown.GetData(), current.GetData()); err != nil {
		return nil, &ConversionError{ID: written.GetId(), From: t.Type.GetGroupVersion(), To: t.Stored().GetGroupVersion(), IsWritten: true, Err: err}
	}
	return out, nil
}

// Lift returns a resource of the store in the stored group version. It converts one that was written in a served group version before the stored version
// existed. Lift fails with a *ConversionError.
func (t *Type) Lift(res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if t.versions == nil {
		return res, nil
	}
	return t.versions.toStored(res)
}

// toStored returns a resource of the store in the stored group version.
func (v *versions) toStored(res *resourcepb.Resource) (*resourcepb.Resource, error) {
	t := v.all[res.GetId().GetType().GetGroupVersion()]
	if t == nil || t == v.stored {
		return res, nil
	}
	out, err := t.ToStored(res, nil)
	if failed := (*ConversionError)(nil); errors.As(err, &failed) {
		failed.IsWritten = false
	}
	return out, err
}

// payloadFromStored converts a stored payload to t.
func (t *Type) payloadFromStored(data *anypb.Any) (*anypb.Any, error) {
	stored, err := t.versions.stored.decode(data)
	if err != nil {
		return nil, err
	}
	served, err := t.Conversion.FromStored(stored)
	if err != nil {
		return nil, err
	}
	return t.encode(served, data.GetTypeUrl())
}

// payloadToStored converts a written payload of t. shown is the stored payload current as a payload of t. Both are nil if none is stored.
func (t *Type) payloadToStored(written, shown, current *anypb.Any) (*anypb.Any, error) {
	now, err := t.convertToStored(written, current)
	if err != nil || current == nil {
		return now, err
	}
	known, err := t.convertToStored(shown, current)
	if err != nil {
		return nil, fmt.Errorf("convert the stored payload back: %w", err)
	}
	if proto.Equal(known, now) {
		return current, nil
	}
	var decoded [3]protoreflect.Message
	for i, data := range []*anypb.Any{current, known, now} {
		m, err := t.versions.stored.decode(data)
		if err != nil {
			return nil, err
		}
		decoded[i] = m.ProtoReflect()
	}
	merged, err := merge(decoded[0], decoded[1], decoded[2])
	if err != nil {
		return nil, err
	}
	return t.versions.stored.encode(merged.Interface(), current.GetTypeUrl())
}

// convertToStored calls the function ToStored of the Conversion.
func (t *Type) convertToStored(data, current *anypb.Any) (*anypb.Any, error) {
	written, err := t.decode(data)
	if err != nil {
		return nil, err
	}
	var stored proto.Message
	if current != nil {
		if stored, err = t.versions.stored.decode(current); err != nil {
			return nil, err
		}
	}
	converted, err := t.Conversion.ToStored(written, stored)
	if err != nil {
		return nil, err
	}
	return t.versions.stored.encode(converted, data.GetTypeUrl())
}

// decode decodes a payload of t.
func (t *Type) decode(data *anypb.Any) (proto.Message, error) {
	m := t.Proto.ProtoReflect().New()
	if got, want := data.MessageName(), m.Descriptor().FullName(); got != want {
		return nil, fmt.Errorf("the payload is %.300q, expected %q", got, want)
	}
	return m.Interface(), proto.Unmarshal(data.GetValue(), m.Interface())
}

// encode encodes a payload of t. Its type URL has the prefix of url, the type URL of another payload.
func (t *Type) encode(m proto.Message, url string) (*anypb.Any, error) {
	want := t.Proto.ProtoReflect().Descriptor().FullName()
	if m == nil || !m.ProtoReflect().IsValid() {
		return nil, fmt.Errorf("the conversion returned no %s", want)
	}
	if got := m.ProtoReflect().Descriptor().FullName(); got != want {
		return nil, fmt.Errorf("the conversion returned a %s, expected a %s", got, want)
	}
	value, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	other := (&anypb.Any{TypeUrl: url}).MessageName()
	return &anypb.Any{TypeUrl: url[:len(url)-len(other)] + string(want), Value: value}, err
}

// withType returns a shallow copy of a resource with another type.
func withType(res *resourcepb.Resource, t *resourcepb.Type) *resourcepb.Resource {
	out := &resourcepb.Resource{}
	res.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		out.ProtoReflect().Set(f, value)
		return true
	})
	out.ProtoReflect().SetUnknown(res.ProtoReflect().GetUnknown())
	out.Id = idWithType(res.GetId(), t)
	return out
}

// idWithType returns a copy of an id with another type.
func idWithType(id *resourcepb.ID, t *resourcepb.Type) *resourcepb.ID {
	out := proto.CloneOf(id)
	out.Type = proto.CloneOf(t)
	return out
}
