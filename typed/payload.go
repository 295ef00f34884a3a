package typed

import (
	"errors"

	"google.golang.org/protobuf/proto"
)

// Messages returns the codec of resources with a payload of the protobuf message T, a pointer to a generated type.
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
				return nil, errors.New("the message is nil")
			}
			return proto.MarshalOptions{Deterministic: true}.Marshal(m)
		},
		empty: func() T { return typ.New().Interface().(T) },
		clone: func(m T) T { return proto.CloneOf(m) },
		equal: func(a, b T) bool { return proto.Equal(a, b) },
	}
}
