package controller

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// The names of the indexes that every type has.
const (
	// IDIndex finds a resource by an id or a reference. With List, an empty name selects the tenancy, and an empty namespace or partition, too,
	// selects everything below.
	IDIndex = "id"
	// OwnerIndex finds the resources of an owner by its id. Without a uid it finds the resources of all owners with the same name.
	OwnerIndex = "owner"
)

// Index finds resources of one type by derived keys. Create it once, as a variable of the program: two controllers that use one index pass the
// same pointer.
type Index struct {
	name string
	keys func(*resourcepb.Resource) []string
	// query returns the key that arguments select. isPrefix reports that all keys with this prefix are selected.
	query func(args []any) (k string, isPrefix bool, err error)
}

// Name returns the name of the index.
func (i *Index) Name() string { return i.name }

// NewIndex returns an index. A function derives the keys from a resource: it must always return the same keys for a resource, and must not modify
// it. If it panics, the panic is logged, and all reads through the index fail as long as the cache has the resource. query returns the key that the
// arguments of a query select.
func NewIndex(name string, keys func(*resourcepb.Resource) []string, query func(args ...any) (string, error)) *Index {
	return &Index{name, keys, func(args []any) (string, bool, error) {
		k, err := query(args...)
		if err != nil {
			err = fmt.Errorf("index %q: %w", name, err)
		}
		return k, false, err
	}}
}

// IndexBy is [NewIndex] for decoded resources. The argument of a query is a key, a string. Resources that cannot be decoded have no keys.
func IndexBy[T proto.Message](name string, keys func(*typed.Object[T]) []string) *Index {
	codec := typed.Messages[T]()
	return NewIndex(name, func(res *resourcepb.Resource) []string {
		o, err := codec.Object(res)
		if err != nil {
			return nil
		}
		return keys(o)
	}, func(args ...any) (string, error) {
		if len(args) == 1 {
			if k, ok := args[0].(string); ok {
				return k, nil
			}
		}
		return "", fmt.Errorf("expected one string as argument, got %v", args)
	})
}

// RefIndex returns an index by the references that an object contains. The argument of a query is the id of a resource, or a reference to it.
func RefIndex[T proto.Message](name string, refs func(*typed.Object[T]) []*resourcepb.Reference) *Index {
	index := IndexBy(name, func(o *typed.Object[T]) (keys []string) {
		for _, ref := range refs(o) {
			keys = append(keys, string(keyOfRef(ref).Bytes()))
		}
		return keys
	})
	index.query = func(args []any) (string, bool, error) {
		k, _, err := keyArgument(name, args)
		return string(k.Bytes()), false, err
	}
	return index
}

// ownerIndex is the index by owner.
var ownerIndex = &Index{
	name: OwnerIndex,
	keys: func(res *resourcepb.Resource) []string {
		if res.GetOwner() == nil {
			return nil
		}
		return []string{string(key.Of(res.GetOwner()).Bytes()) + "\x00" + res.GetOwner().GetUid()}
	},
	query: func(args []any) (string, bool, error) {
		k, uid, err := keyArgument(OwnerIndex, args)
		return string(k.Bytes()) + "\x00" + uid, uid == "", err
	},
}

// keyArgument returns the key and the uid of the only argument of a query, an id or a reference.
func keyArgument(index string, args []any) (key.Key, string, error) {
	if len(args) == 1 {
		switch arg := args[0].(type) {
		case *resourcepb.ID:
			return key.Of(arg), arg.GetUid(), nil
		case *resourcepb.Reference:
			return keyOfRef(arg), "", nil
		}
	}
	return key.Key{}, "", fmt.Errorf("index %q: expected one *resourcepb.ID or *resourcepb.Reference as argument, got %v", index, args)
}

func keyOfRef(ref *resourcepb.Reference) key.Key {
	return key.Of(&resourcepb.ID{Type: ref.GetType(), Tenancy: ref.GetTenancy(), Name: ref.GetName()})
}

// checkName reports why the name of an index, a query or a controller is unusable.
func checkName(kind, name string) error {
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }) {
		return fmt.Errorf("%s %q: expected a name without control characters", kind, name)
	}
	return nil
}
