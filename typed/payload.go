package typed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// Messages returns the codec of resources whose payload is the protobuf message T, a pointer to a generated type.
func Messages[T proto.Message]() *Codec[T] {
	var none T
	typ := none.ProtoReflect().Type()
	return &Codec[T]{
		message: string(typ.Descriptor().FullName()),
		decode: func(payload []byte) (T, error) {
			m := typ.New().Interface().(T)
			return m, proto.Unmarshal(payload, m)
		},
		encode: func(m T) ([]byte, error) {
			if !m.ProtoReflect().IsValid() {
				return nil, errors.New("it is nil")
			}
			return proto.MarshalOptions{Deterministic: true}.Marshal(m)
		},
		clone: func(m T) T { return proto.CloneOf(m) },
		equal: func(a, b T) bool { return proto.Equal(a, b) },
	}
}

// JSON returns the codec of resources whose payload is a Go value, which is stored as the google.protobuf.Struct of its JSON object. So
// ashlar get shows it, and programs in other languages read it.
func JSON[T any]() *Codec[T] {
	encode := func(v T) ([]byte, error) {
		text, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		s := &structpb.Struct{}
		if err := protojson.Unmarshal(text, s); err != nil {
			return nil, fmt.Errorf("its JSON is no object: %w", err)
		}
		if err := exact(text); err != nil {
			return nil, err
		}
		return proto.MarshalOptions{Deterministic: true}.Marshal(s)
	}
	decode := func(payload []byte) (v T, err error) {
		s := &structpb.Struct{}
		if err := proto.Unmarshal(payload, s); err != nil {
			return v, err
		}
		text, err := protojson.Marshal(s)
		if err != nil {
			return v, err
		}
		return v, json.Unmarshal(text, &v)
	}
	return &Codec[T]{
		message: "google.protobuf.Struct", encode: encode, decode: decode,
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

// exact refuses JSON with a number that a Struct would change: it holds floating-point numbers, which tell whole ones apart up to 2^53.
func exact(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err != nil {
			return nil // the end: the text was decoded before
		}
		number, ok := token.(json.Number)
		if !ok {
			continue
		}
		whole, integer := new(big.Int).SetString(number.String(), 10)
		f, err := number.Float64()
		if !integer || err != nil {
			continue // a fraction, which is as exact as a float64 is; what is too large for one has been refused already
		}
		if stored, _ := big.NewFloat(f).Int(nil); stored.Cmp(whole) != 0 {
			return fmt.Errorf("the number %s cannot be stored exactly: tag the field with `json:\",string\"`", number)
		}
	}
}
