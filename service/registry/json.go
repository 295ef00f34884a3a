package registry

import (
	"errors"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// ConvertJSON is Convert for payloads of JSON objects, as typed.NewJSON stores them: the Proto of both types is a google.protobuf.Struct. The functions
// convert Go values. Fields of a stored object that the Go type Stored lacks are kept. The second argument of toStored is nil if nothing is stored.
func ConvertJSON[Served, Stored any](
	stored string, fromStored func(Stored) (Served, error), toStored func(written Served, stored *Stored) (Stored, error),
) *Conversion {
	return Convert(stored,
		func(in *structpb.Struct) (*structpb.Struct, error) {
			value, err := goValue[Stored](in)
			if err != nil {
				return nil, err
			}
			served, err := fromStored(value)
			if err != nil {
				return nil, err
			}
			return structOf(served)
		},
		func(in, stored *structpb.Struct) (*structpb.Struct, error) {
			written, err := goValue[Served](in)
			if err != nil {
				return nil, err
			}
			var current *Stored
			if stored != nil {
				value, err := goValue[Stored](stored)
				if err != nil {
					return nil, err
				}
				current = &value
			}
			converted, err := toStored(written, current)
			if err != nil {
				return nil, err
			}
			return structOf(converted)
		})
}

// goValue decodes a JSON object.
func goValue[T any](s *structpb.Struct) (v T, err error) {
	payload, err := anypb.New(s)
	if err != nil {
		return v, err
	}
	o, err := typed.JSON[T]().Object(&resourcepb.Resource{Id: &resourcepb.ID{}, Data: payload})
	if failed := (*typed.PayloadError)(nil); errors.As(err, &failed) {
		return v, failed.Err // the caller names the resource
	}
	if err != nil {
		return v, err
	}
	return o.Data, nil
}

// structOf encodes a Go value as a JSON object.
func structOf[T any](v T) (*structpb.Struct, error) {
	res, err := typed.JSON[T]().Resource(&typed.Object[T]{ID: &resourcepb.ID{}, Data: v})
	if err != nil {
		return nil, err
	}
	s := &structpb.Struct{}
	return s, proto.Unmarshal(res.GetData().GetValue(), s)
}
