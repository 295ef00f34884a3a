package registry

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage/internal/pairing"
)

// merge returns the stored message with the differences between known and now applied to it, at any depth. known is the stored message without the
// parts that another version lacks, and now is the same with the changes of a client of that version. It fails if a change cannot be applied without
// the loss of list elements that known lacks. It modifies the stored message, which it returns and which then shares memory with now.
func merge(stored, known, now protoreflect.Message) (protoreflect.Message, error) {
	return (&merger{maxWork}).merge(stored, known, now)
}

// merger is one call of merge. Each level of nested messages is compared and copied with all its parts, so the work is limited: otherwise a small write
// with many levels would take minutes.
type merger struct{ work int }

// maxWork is the total size of the messages that a merger compares at all levels: a payload of 1 MiB may have changes at a depth of about 40 messages.
const maxWork = 128 << 20

var errTooDeep = errors.New("its changes are nested too deeply to be merged with the stored payload")

func (w *merger) merge(stored, known, now protoreflect.Message) (protoreflect.Message, error) {
	if w.work -= proto.Size(stored.Interface()) + proto.Size(known.Interface()) + proto.Size(now.Interface()); w.work < 0 {
		return nil, errTooDeep
	}
	for _, f := range changedFields(known, now) {
		if err := w.mergeField(stored, f, known, now); err != nil {
			return nil, err
		}
	}
	if !bytes.Equal(known.GetUnknown(), now.GetUnknown()) {
		stored.SetUnknown(mergeUnknown(stored.GetUnknown(), known.GetUnknown(), now.GetUnknown()))
	}
	return stored, nil
}

// changedFields returns the fields, extensions included, that differ between two messages.
func changedFields(known, now protoreflect.Message) (changed []protoreflect.FieldDescriptor) {
	known.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !now.Has(f) {
			changed = append(changed, f)
		}
		return true
	})
	now.Range(func(f protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		if !known.Has(f) || !known.Get(f).Equal(value) {
			changed = append(changed, f)
		}
		return true
	})
	return changed
}

// mergeUnknown applies the differences between known and now to the unknown fields of a stored message. All values of a number are one field.
func mergeUnknown(stored, known, now []byte) (out []byte) {
	before, after := unknownFields(known), unknownFields(now)
	for number, value := range unknownFields(stored) {
		if bytes.Equal(before[number], after[number]) {
			after[number] = value
		}
	}
	for _, number := range slices.Sorted(maps.Keys(after)) {
		out = append(out, after[number]...)
	}
	return out
}

// unknownFields returns the encoded values of each field number.
func unknownFields(raw []byte) map[protowire.Number][]byte {
	fields := map[protowire.Number][]byte{}
	for len(raw) > 0 {
		number, _, size := protowire.ConsumeField(raw)
		if size < 0 {
			break // the message was decoded, so this does not happen
		}
		fields[number] = append(fields[number], raw[:size]...)
		raw = raw[size:]
	}
	return fields
}

// mergeField sets a field of the stored message that differs between known and now.
func (w *merger) mergeField(stored protoreflect.Message, f protoreflect.FieldDescriptor, known, now protoreflect.Message) error {
	switch {
	case f.IsList():
		list, err := w.mergeLists(f, stored.Get(f).List(), known.Get(f).List(), now.Get(f).List())
		if err != nil {
			return err
		}
		stored.Clear(f)
		for _, value := range list {
			stored.Mutable(f).List().Append(value)
		}
	case f.IsMap():
		return w.mergeMaps(stored.Mutable(f).Map(), f, known.Get(f).Map(), now.Get(f).Map())
	case !now.Has(f):
		// The stored message may have another member of a oneof, which the other version shows as this one.
		if oneof := f.ContainingOneof(); oneof != nil && now.WhichOneof(oneof) == nil && stored.WhichOneof(oneof) != nil {
			f = stored.WhichOneof(oneof)
		}
		stored.Clear(f)
	case stored.Has(f) && isNested(f):
		value, err := w.merge(stored.Get(f).Message(), known.Get(f).Message(), now.Get(f).Message())
		if err != nil {
			return err
		}
		stored.Set(f, protoreflect.ValueOfMessage(value))
	default:
		stored.Set(f, now.Get(f))
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

// mergeMaps applies the differences between known and now to out, the stored map.
func (w *merger) mergeMaps(out protoreflect.Map, f protoreflect.FieldDescriptor, known, now protoreflect.Map) (err error) {
	if f.ContainingMessage().FullName() == "google.protobuf.Struct" {
		renameFields(out, known, now)
	}
	known.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		if now.Has(key) {
			return true
		}
		if out.Has(key) {
			if had, has := jsonLength(out.Get(key)), jsonLength(value); had >= 0 && has >= 0 && had != has {
				err = partsError(fmt.Sprintf("%q", key.String()), had, has)
				return false
			}
		}
		out.Clear(key)
		return true
	})
	if err != nil {
		return err
	}
	now.Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
		if known.Has(key) && known.Get(key).Equal(value) {
			return true
		}
		if out.Has(key) && isNested(f.MapValue()) {
			was := out.NewValue() // the other version may omit an empty value
			if known.Has(key) {
				was = known.Get(key)
			}
			var merged protoreflect.Message
			if merged, err = w.merge(out.Get(key).Message(), was.Message(), value.Message()); err != nil {
				return false
			}
			value = protoreflect.ValueOfMessage(merged)
		}
		out.Set(key, value)
		return true
	})
	return err
}

// renameFields gives the fields of a stored JSON object the names that a Go type encodes, if they differ in upper and lower case only: package json decodes
// both, and the object must not have both. Names that exist stay.
func renameFields(stored, known, now protoreflect.Map) {
	names := map[string]protoreflect.MapKey{}
	for _, m := range []protoreflect.Map{known, now} {
		m.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
			names[pairing.Fold(key.String())] = key
			return true
		})
	}
	others := map[string]protoreflect.MapKey{}
	stored.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
		folded := pairing.Fold(key.String())
		if name, ok := names[folded]; !ok || stored.Has(name) || known.Has(key) || now.Has(key) {
			return true
		}
		if other, ok := others[folded]; !ok || key.String() > other.String() {
			others[folded] = key // the last one in this order is the one that is decoded
		}
		return true
	})
	for folded, key := range others {
		value := stored.Get(key)
		stored.Clear(key)
		stored.Set(names[folded], value)
	}
}

// mergeLists applies the differences between known and now to the elements of a stored list that the elements of now continue. Package pairing has the
// rules; other elements of now stay as they are.
func (w *merger) mergeLists(f protoreflect.FieldDescriptor, stored, known, now protoreflect.List) ([]protoreflect.Value, error) {
	if stored.Len() != known.Len() {
		return nil, partsError(string(f.FullName()), stored.Len(), known.Len())
	}
	pairs := pairing.Lists(jsonValues(stored), jsonValues(known), jsonValues(now))
	out := make([]protoreflect.Value, now.Len())
	for i := range now.Len() {
		value, at := now.Get(i), pairs[i]
		switch {
		case at >= 0 && known.Get(at).Equal(value):
			value = stored.Get(at)
		case at >= 0 && isNested(f):
			merged, err := w.merge(stored.Get(at).Message(), known.Get(at).Message(), value.Message())
			if err != nil {
				return nil, err
			}
			value = protoreflect.ValueOfMessage(merged)
		}
		out[i] = value
	}
	return out, nil
}

// partsError is the error of a change to a list of which the other version has a part.
func partsError(name string, stored, known int) error {
	return fmt.Errorf("the list %s has %d elements and only %d of them in the other version, so a change would lose the rest: ToStored must keep them",
		name, stored, known)
}

// jsonLength returns the length of a JSON list in a map, and -1 for other values.
func jsonLength(value protoreflect.Value) int {
	m, _ := value.Interface().(protoreflect.Message)
	if m == nil {
		return -1
	}
	list, _ := m.Interface().(*structpb.Value)
	if _, isList := list.GetKind().(*structpb.Value_ListValue); !isList {
		return -1
	}
	return len(list.GetListValue().GetValues())
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
		if value, ok := m.Interface().(*structpb.Value); ok {
			all[i] = value
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
