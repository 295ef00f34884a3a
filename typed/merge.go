package typed

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage/internal/pairing"
)

// maxDepth bounds the nesting of the messages of a Struct. One level of JSON takes up to three nested messages, and JSON of up to
// 10,000 levels can be encoded. The default limit of package proto is 10,000 messages, with which some stored payloads could not be
// read.
const maxDepth = 3*10_000 + 10

// unmarshalStruct decodes a stored payload.
func unmarshalStruct(payload []byte) (*structpb.Struct, error) {
	s := &structpb.Struct{}
	return s, proto.UnmarshalOptions{RecursionLimit: maxDepth}.Unmarshal(payload, s)
}

// mergePayloads returns the new payload with the fields of the stored payload that the Go type lacks. known is the stored payload without them.
func mergePayloads(stored, known, now []byte) ([]byte, error) {
	var structs [3]*structpb.Struct
	for i, payload := range [][]byte{stored, known, now} {
		s, err := unmarshalStruct(payload)
		if err != nil {
			return nil, err
		}
		structs[i] = s
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(mergeStructs(structs[0], structs[1], structs[2]))
}

// mergeStructs merges objects as mergePayloads does.
func mergeStructs(stored, known, now *structpb.Struct) *structpb.Struct {
	out := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(stored.GetFields()))}
	byFold := map[string][]string{} // the stored fields under each folded name, in the order in which package json decodes them
	for _, name := range slices.Sorted(maps.Keys(stored.GetFields())) {
		byFold[pairing.Fold(name)] = append(byFold[pairing.Fold(name)], name)
	}
	isKnown := map[string]bool{}
	for name := range known.GetFields() {
		isKnown[pairing.Fold(name)] = true
	}
	wasKnown := maps.Clone(isKnown)
	for name, value := range now.GetFields() {
		isKnown[pairing.Fold(name)] = true
		before, was := stored.GetFields()[name], known.GetFields()[name]
		isOmitted := !wasKnown[pairing.Fold(name)] // such as a zero object by omitzero
		if same := byFold[pairing.Fold(name)]; before == nil && (was != nil || isOmitted) && len(same) > 0 {
			before = stored.GetFields()[same[len(same)-1]]
		}
		if isOmitted && before.GetStructValue() != nil {
			was = structpb.NewStructValue(&structpb.Struct{})
		}
		out.Fields[name] = mergeValues(before, was, value)
	}
	for name, value := range stored.GetFields() {
		if !isKnown[pairing.Fold(name)] {
			out.Fields[name] = value
		}
	}
	return out
}

// mergeValues merges values as mergePayloads does. stored and known are nil for a new value.
func mergeValues(stored, known, now *structpb.Value) *structpb.Value {
	switch {
	case stored == nil || known == nil:
		return now
	case proto.Equal(known, now):
		return stored
	case stored.GetStructValue() != nil && known.GetStructValue() != nil && now.GetStructValue() != nil:
		return structpb.NewStructValue(mergeStructs(stored.GetStructValue(), known.GetStructValue(), now.GetStructValue()))
	case stored.GetListValue() != nil && known.GetListValue() != nil && now.GetListValue() != nil:
		return structpb.NewListValue(mergeLists(stored.GetListValue(), known.GetListValue(), now.GetListValue()))
	}
	return now
}

// mergeLists merges lists as mergePayloads does. The elements of the new list that continue no stored element stay as they are.
func mergeLists(stored, known, now *structpb.ListValue) *structpb.ListValue {
	if len(stored.GetValues()) != len(known.GetValues()) {
		return now
	}
	pairs := pairing.Lists(stored.GetValues(), known.GetValues(), now.GetValues())
	out := &structpb.ListValue{Values: make([]*structpb.Value, len(now.GetValues()))}
	for i, value := range now.GetValues() {
		if at := pairs[i]; at >= 0 {
			value = mergeValues(stored.GetValues()[at], known.GetValues()[at], value)
		}
		out.Values[i] = value
	}
	return out
}
