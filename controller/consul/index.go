package consul

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// Index finds resources of one type by derived keys.
type Index = controller.Index

// ReferenceOrID is a reference to a resource, or an id.
type ReferenceOrID interface {
	GetType() *resourcepb.Type
	GetTenancy() *resourcepb.Tenancy
	GetName() string
}

// IndexFromRefOrID returns the index key of a reference or an id. It contains neither the group version nor the uid.
func IndexFromRefOrID(r ReferenceOrID) []byte {
	return key.Of(&resourcepb.ID{Type: r.GetType(), Tenancy: r.GetTenancy(), Name: r.GetName()}).Bytes()
}

// ReferenceOrIDFromArgs returns the index key of the only argument of a query, which is a reference or an id.
func ReferenceOrIDFromArgs(args ...any) ([]byte, error) {
	if len(args) == 1 {
		if r, ok := args[0].(ReferenceOrID); ok {
			return IndexFromRefOrID(r), nil
		}
	}
	return nil, fmt.Errorf("expected one reference or id as argument, got %v", args)
}

// FromArgs returns the index key that the arguments of a query select.
type FromArgs func(args ...any) ([]byte, error)

// SingleIndexer returns the index key of a resource; false for none. After an error the resource has no key.
type SingleIndexer[T proto.Message] func(*DecodedResource[T]) (bool, []byte, error)

// MultiIndexer returns the index keys of a resource; false for none. After an error the resource has no key.
type MultiIndexer[T proto.Message] func(*DecodedResource[T]) (bool, [][]byte, error)

// DecodedSingleIndexer returns an index by the key that a function derives from a decoded resource.
func DecodedSingleIndexer[T proto.Message](name string, args FromArgs, from SingleIndexer[T]) *Index {
	return DecodedMultiIndexer(name, args, func(r *DecodedResource[T]) (bool, [][]byte, error) {
		ok, k, err := from(r)
		return ok, [][]byte{k}, err
	})
}

// DecodedMultiIndexer returns an index by the keys that a function derives from a decoded resource. Resources that cannot be decoded have none.
func DecodedMultiIndexer[T proto.Message](name string, args FromArgs, from MultiIndexer[T]) *Index {
	return controller.NewIndex(name, func(res *resourcepb.Resource) (keys []string) {
		decoded, err := Decode[T](res)
		if err != nil {
			return nil
		}
		ok, all, err := from(decoded)
		if !ok || err != nil {
			return nil
		}
		for _, k := range all {
			keys = append(keys, string(k))
		}
		return keys
	}, func(given ...any) (string, error) {
		k, err := args(given...)
		return string(k), err
	})
}

// BoundReferences is a computed payload that lists its inputs.
type BoundReferences interface {
	proto.Message
	GetBoundReferences() []*resourcepb.Reference
}

// BoundRefsIndex returns an index by the bound references of the payload. A controller of this module does not need them to reconcile both ends of
// a moved reference, because its mappers get the old state of a change, too.
func BoundRefsIndex[T BoundReferences](name string) *Index {
	return controller.RefIndex(name, func(o *typed.Object[T]) []*resourcepb.Reference { return o.Data.GetBoundReferences() })
}
