package typed

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
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
	folded := map[string]bool{} // package json decodes a field under its name in any case
	for name := range known.GetFields() {
		folded[strings.ToLower(name)] = true
	}
	for name, value := range now.GetFields() {
		folded[strings.ToLower(name)] = true
		out.Fields[name] = mergeValues(stored.GetFields()[name], known.GetFields()[name], value)
	}
	for name, value := range stored.GetFields() {
		if !folded[strings.ToLower(name)] {
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

// mergeLists merges lists as mergePayloads does. An element of the new list continues the stored element that equals it. Changed elements between
// two such elements continue the stored elements between these, if they are equally many.
func mergeLists(stored, known, now *structpb.ListValue) *structpb.ListValue {
	if len(stored.GetValues()) != len(known.GetValues()) {
		return now
	}
	byContent := map[string][]int{} // indexes of known elements that no new element continues yet
	for i, value := range known.GetValues() {
		byContent[content(value)] = append(byContent[content(value)], i)
	}
	out := &structpb.ListValue{Values: make([]*structpb.Value, len(now.GetValues()))}
	start, previous := 0, -1 // the first changed element, and the stored element that the element before it continues
	merge := func(end, next int) {
		for i, value := range now.GetValues()[start:end] {
			if at := previous + 1 + i; next-previous-1 == end-start {
				value = mergeValues(stored.GetValues()[at], known.GetValues()[at], value)
			}
			out.Values[start+i] = value
		}
	}
	for i, value := range now.GetValues() {
		at := byContent[content(value)]
		if len(at) == 0 {
			continue
		}
		byContent[content(value)] = at[1:]
		merge(i, at[0])
		out.Values[i] = stored.GetValues()[at[0]]
		start, previous = i+1, at[0]
	}
	merge(len(now.GetValues()), len(known.GetValues()))
	return out
}

// content returns an encoding of a value that is equal for equal values.
func content(value *structpb.Value) string {
	text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(value) // the value was decoded, so it can be encoded
	return string(text)
}
