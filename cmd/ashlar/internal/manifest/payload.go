package manifest

import (
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"
)

// pack encodes an object as a Struct in an Any. The same object always yields the same bytes.
func pack(fields []field) (*anypb.Any, error) {
	s, err := toStruct(fields)
	if err != nil {
		return nil, err
	}
	data := new(anypb.Any)
	if err := anypb.MarshalFrom(data, s, proto.MarshalOptions{Deterministic: true}); err != nil {
		return nil, fmt.Errorf("encode the payload: %w", err)
	}
	return data, nil
}

func toStruct(fields []field) (*structpb.Struct, error) {
	s := &structpb.Struct{Fields: make(map[string]*structpb.Value, len(fields))}
	for _, f := range fields {
		v, err := toValue(f.value)
		if err != nil {
			return nil, err
		}
		s.Fields[f.name] = v
	}
	return s, nil
}

func toValue(n *node) (*structpb.Value, error) {
	switch n.kind {
	case boolean:
		return structpb.NewBoolValue(n.text == "true"), nil
	case number:
		f, err := float(n)
		if err != nil {
			return nil, err
		}
		return structpb.NewNumberValue(f), nil
	case text:
		return structpb.NewStringValue(n.text), nil
	case list:
		values := make([]*structpb.Value, len(n.items))
		for i, item := range n.items {
			v, err := toValue(item)
			if err != nil {
				return nil, err
			}
			values[i] = v
		}
		return structpb.NewListValue(&structpb.ListValue{Values: values}), nil
	case object:
		s, err := toStruct(n.fields)
		if err != nil {
			return nil, err
		}
		return structpb.NewStructValue(s), nil
	}
	return structpb.NewNullValue(), nil
}

// float returns a number as a Struct stores it, and rejects numbers that would change.
func float(n *node) (float64, error) {
	f, err := strconv.ParseFloat(n.text, 64)
	if err != nil {
		return 0, errAt(n.line, "the number %s is out of range; put it in quotes", n.text)
	}
	if isWhole(n.text) && strconv.FormatFloat(f, 'f', -1, 64) != n.text {
		return 0, errAt(n.line, "the number %s would become %s, because payloads contain 64-bit floating point; put it in quotes",
			n.text, strconv.FormatFloat(f, 'f', -1, 64))
	}
	return f, nil
}

// checkNumbers applies float to all numbers in n.
func checkNumbers(n *node) error {
	if n.kind == number {
		_, err := float(n)
		return err
	}
	for _, item := range n.items {
		if err := checkNumbers(item); err != nil {
			return err
		}
	}
	for _, f := range n.fields {
		if err := checkNumbers(f.value); err != nil {
			return err
		}
	}
	return nil
}
