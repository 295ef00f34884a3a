package registry

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Resource is a resource with its decoded payload.
type Resource[T proto.Message] struct {
	*resourcepb.Resource
	// Data is the decoded payload, or an empty message if the resource has no payload.
	Data T
}

// Decoded wraps a function of a decoded resource for Type.Mutate or Type.Validate. If the function changes the payload, the payload of the resource
// is replaced. T must be a pointer to a generated message.
func Decoded[T proto.Message](f func(*Resource[T]) error) func(*resourcepb.Resource) error {
	return func(res *resourcepb.Resource) error {
		var none T
		data := none.ProtoReflect().New().Interface().(T)
		if res.GetData() != nil {
			if err := res.GetData().UnmarshalTo(data); err != nil {
				return fmt.Errorf("the payload does not decode: %w", err)
			}
		}
		before := proto.CloneOf(data)
		if err := f(&Resource[T]{Resource: res, Data: data}); err != nil {
			return err
		}
		if proto.Equal(before, data) {
			return nil // re-encoding could change the bytes
		}
		encoded, err := proto.MarshalOptions{Deterministic: true}.Marshal(data)
		if err != nil {
			return fmt.Errorf("the payload does not encode: %w", err)
		}
		url := res.GetData().GetTypeUrl()
		if url == "" {
			url = "type.googleapis.com/" + string(data.ProtoReflect().Descriptor().FullName())
		}
		res.Data = &anypb.Any{TypeUrl: url, Value: encoded}
		return nil
	}
}
