package registry

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage/internal/pairing"
)

// merge returns the stored message with the differences between known and now applied to it, at any depth. known is the stored message without the
// parts that another version lacks, and now is the same with the changes of a client of that version. It fails if a change cannot be applied without
// the loss of list elements that known lacks. The result shares memory with its arguments.
func merge(stored, known, now protoreflect.Message) (protoreflect.Message, error) {
	out := proto.Clone(stored.Interface()).ProtoReflect()
	fields := now.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if known.Has(f) == now.Has(f) && known.Get(f).Equal(now.Get(f)) {
			continue
		}
		if err := mergeField(out, f, stored, known, now); err != nil {
			return nil, err
		}
	}
	if !bytes.Equal(known.GetUnknown(), now.GetUnknown()) {
		out.SetUnknown(now.GetUnknown())
	}
	return out, nil
}

// mergeField sets a field that differs between known and now.
func mergeField(out protoreflect.Message, f protoreflect.FieldDescriptor, stored, known, now protoreflect.Message) error {
	switch {
	case f.IsList():
		list, err := mergeLists(f, stored.Get(f).List(), known.Get(f).List(), now.Get(f).List())
		if err != nil {
			return err
		}
		out.Clear(f)
		for _, value := range list {
			out.Mutable(f).List().Append(value)
		}
	case f.IsMap():
		return mergeMaps(out.Mutable(f).Map(), f, stored.Get(f).Map(), known.Get(f).Map(), now.Get(f).Map())
	case !now.Has(f):
		out.Clear(f)
	case stored.Has(f) && isNested(f):
		value, err := merge(stored.Get(f).Message(), known.Get(f).Message(), now.Get(f).Message())
		if err != nil {
			return err
		}
		out.Set(f, protoreflect.ValueOfMessage(value))
	default:
		out.Set(f, now.Get(f))
	}
	return nil
}

// isNested reports whether a field, or the elements of a list or a map, have messages that are merged. The messages of package google.protobuf, such as
// a timestamp, are values, except JSON.
func isNested(f protoreflect.FieldDescriptor) bool {
	m := f.Message()
	if m == nil || m.FullName().Parent() != "google.protobuf" {
		return m != nil
	}
	return m.Name() == "Struct" || m.Name() == "Value" || m.Name() == "ListValue"
}

// mergeMaps applies the differences between known and now to a copy of the stored map.
func mergeMaps(out protoreflect.Map, f protoreflect.FieldDescriptor, stored, known, now protoreflect.Map) (err error) {
	known.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
		if !now.Has(key) {
			out.Clear(key)
		}
		return true
	})
	now.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		if known.Has(key) && known.Get(key).Equal(value) {
			return true
		}
		if stored.Has(key) && known.Has(key) && isNested(f.MapValue()) {
			var merged protoreflect.Message
			if merged, err = merge(stored.Get(key).Message(), known.Get(key).Message(), value.Message()); err != nil {
				return false
			}
			value = protoreflect.ValueOfMessage(merged)
		}
		out.Set(key, value)
		return true
	})
	return err
}

// mergeLists applies the differences between known and now to the elements of a stored list that the elements of now continue. Package pairing has the
// rules; other elements of now stay as they are.
func mergeLists(f protoreflect.FieldDescriptor, stored, known, now protoreflect.List) ([]protoreflect.Value, error) {
	if stored.Len() != known.Len() {
		return nil, fmt.Errorf("the list %s has %d elements, of which the other version has %d, so a change of it would lose the others: ToStored must keep them",
			f.FullName(), stored.Len(), known.Len())
	}
	pairs := pairing.Lists(jsonValues(stored), jsonValues(known), jsonValues(now))
	out := make([]protoreflect.Value, now.Len())
	for i := range now.Len() {
		value, at := now.Get(i), pairs[i]
		switch {
		case at >= 0 && known.Get(at).Equal(value):
			value = stored.Get(at)
		case at >= 0 && isNested(f):
			merged, err := merge(stored.Get(at).Message(), known.Get(at).Message(), value.Message())
			if err != nil {
				return nil, err
			}
			value = protoreflect.ValueOfMessage(merged)
		}
		out[i] = value
	}
	return out, nil
}

// jsonValues returns the elements of a list as JSON, from which package pairing takes identities. An element without a form in JSON, such as one with an
// Any of an unknown message, is its encoding.
func jsonValues(list protoreflect.List) []*structpb.Value {
	all := make([]*structpb.Value, list.Len())
	for i := range all {
		all[i] = structpb.NewStringValue(fmt.Sprint(list.Get(i).Interface()))
		m, isMessage := list.Get(i).Interface().(protoreflect.Message)
		if !isMessage {
			continue
		}
		value := &structpb.Value{}
		if text, err := protojson.Marshal(m.Interface()); err == nil && protojson.Unmarshal(text, value) == nil && len(m.GetUnknown()) == 0 {
			all[i] = value
			continue
		}
		encoded, _ := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(m.Interface())
		all[i] = structpb.NewStringValue(fmt.Sprintf("%x", encoded))
	}
	return all
}
