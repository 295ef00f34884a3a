package typed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// JSON returns the codec of resources with a payload of a Go value, stored as the google.protobuf.Struct of its JSON object. So ashlar get can
// display it, and programs in other languages can read it. Text must be valid UTF-8.
//
// # Fields that T lacks
//
// An object that was read and is written again keeps the fields of the stored JSON that T lacks, so a program cannot erase the fields of a newer
// one:
//
//   - Unchanged data is stored as it was, byte for byte.
//   - A changed object keeps the fields that T lacks, at any depth. A field of T is in the result as T encodes it: one that T omits, for example by
//     omitempty, is removed with all its parts. The names of fields are compared as package json does, without regard to case.
//   - A key of a map is a field of T: its value keeps the fields that T lacks, and a key that is removed and added under another name does not.
//   - An unchanged element of a list keeps them, also if it was moved. Of several equal elements, some of which are removed, those keep them that are
//     unchanged up to the beginning or the end of the list; the others only if all have the same fields that T lacks.
//   - A changed element that is an object keeps them if it is the only one in both lists with its identity, which is its first field among "id",
//     "uid", "key" and "name". Without an identity it keeps them if no element was inserted or removed beside it, and if it has a field of
//     the same text as the stored object in its place, and as no other one.
//   - Every other element of a list is stored as T encodes it.
//
// A write fails with [storage.ErrInvalid] if the data would change together with the fields that T lacks.
func JSON[T any]() *Codec[T] {
	decode := func(payload []byte) (v T, err error) {
		s, err := unmarshalStruct(payload)
		if err != nil {
			return v, err
		}
		plain, err := jsonObject(s)
		if err != nil {
			return v, err
		}
		text, err := json.Marshal(plain)
		if err != nil {
			return v, err
		}
		return v, json.Unmarshal(text, &v)
	}
	encode := func(v T) ([]byte, error) {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		if bytes.Contains(bytes.ReplaceAll(text, []byte(`\\`), nil), []byte(`\ufffd`)) { // package json replaces invalid bytes by this escape
			return nil, errors.New("a text is not valid UTF-8")
		}
		s := &structpb.Struct{}
		if err := protojson.Unmarshal(text, s); err != nil {
			return nil, fmt.Errorf("its JSON is not an object: %w", err)
		}
		payload, err := proto.MarshalOptions{Deterministic: true}.Marshal(s)
		if err != nil {
			return nil, err
		}
		if number := firstInexactNumber(text); number != "" { // a float64 may print as another integer than its value, so compare the round trip
			again, err := decode(payload)
			if back, _ := json.Marshal(again); err != nil || !bytes.Equal(back, text) {
				return nil, fmt.Errorf("the number %s cannot be stored exactly: tag the field with `json:\",string\"`", number)
			}
		}
		return payload, nil
	}
	return &Codec[T]{
		message: "google.protobuf.Struct", encode: encode, decode: decode,
		merge: func(stored, encoded []byte) ([]byte, error) {
			if bytes.Equal(stored, encoded) {
				return stored, nil
			}
			recode := func(payload []byte) ([]byte, error) {
				v, err := decode(payload)
				if err != nil {
					return nil, err
				}
				return encode(v)
			}
			known, err := recode(stored)
			if err != nil || bytes.Equal(known, encoded) {
				return stored, err
			}
			merged, err := mergePayloads(stored, known, encoded)
			if err != nil {
				return nil, err
			}
			if again, err := recode(merged); err != nil || !bytes.Equal(again, encoded) {
				return nil, fmt.Errorf("the stored payload has fields that %T lacks, and the data changes with them", *new(T))
			}
			return merged, nil
		},
		empty: func() T {
			if v, err := decode(nil); err == nil { // no nil map or pointer
				return v
			}
			return *new(T)
		},
		clone: func(v T) T {
			out := v
			if payload, err := encode(v); err == nil {
				if decoded, err := decode(payload); err == nil {
					out = decoded
				}
			}
			return out
		},
		equal: func(a, b T) bool {
			x, errX := encode(a)
			y, errY := encode(b)
			return errX == nil && errY == nil && bytes.Equal(x, y)
		},
	}
}

// firstInexactNumber returns the first whole number in a JSON text that a float64 cannot represent, "" for none. All whole numbers up to 2^53 can
// be represented.
func firstInexactNumber(text []byte) string {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err != nil {
			return "" // the end of the text, which was validated before
		}
		number, ok := token.(json.Number)
		if !ok {
			continue
		}
		whole, integer := new(big.Int).SetString(number.String(), 10)
		f, err := number.Float64()
		if !integer || err != nil {
			continue // fractions are as exact as a float64; numbers that are too large were rejected before
		}
		if stored, _ := big.NewFloat(f).Int(nil); stored.Cmp(whole) != 0 {
			return number.String()
		}
	}
}

// jsonObject converts a Struct to a value that encoding/json encodes as the same object.
func jsonObject(s *structpb.Struct) (map[string]any, error) {
	all := make(map[string]any, len(s.GetFields()))
	for name, field := range s.GetFields() {
		v, err := jsonValue(field)
		if err != nil {
			return nil, err
		}
		all[name] = v
	}
	return all, nil
}

// jsonValue converts a value of a Struct to a value for encoding/json. It formats whole numbers with all digits: the shortest text of a
// floating-point number beyond 2^53 is another integer.
func jsonValue(v *structpb.Value) (any, error) {
	switch kind := v.GetKind().(type) {
	case *structpb.Value_NullValue:
		return nil, nil
	case *structpb.Value_BoolValue:
		return kind.BoolValue, nil
	case *structpb.Value_StringValue:
		return kind.StringValue, nil
	case *structpb.Value_StructValue:
		return jsonObject(kind.StructValue)
	case *structpb.Value_ListValue:
		all := make([]any, 0, len(kind.ListValue.GetValues()))
		for _, item := range kind.ListValue.GetValues() {
			v, err := jsonValue(item)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		return all, nil
	case *structpb.Value_NumberValue:
		f := kind.NumberValue
		switch {
		case math.IsNaN(f) || math.IsInf(f, 0):
			return nil, fmt.Errorf("JSON has no number %v", f)
		case f == math.Trunc(f) && math.Abs(f) < 1<<64:
			return json.Number(strconv.FormatFloat(f, 'f', 0, 64)), nil
		}
		return f, nil
	}
	return nil, errors.New("it contains a value without a kind")
}
