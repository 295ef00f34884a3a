package dynamodb

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
)

// registry is the list of the types that a store has ever held, each an item, so that a wildcard list is one query for each type.
type registry struct {
	table *table
	known sync.Map // of storage.UnversionedType: entered
}

// enter enters the type of a key, once for each process, before the first resource of it is created.
func (r *registry) enter(ctx context.Context, k key.Key) error {
	typ := storage.UnversionedType{Group: k.Group, Kind: k.Kind}
	if _, known := r.known.Load(typ); known {
		return nil
	}
	// A put that changes nothing leaves no record in the stream.
	err := r.table.put(ctx, r.table.registered(k.Group, k.Kind), condition{})
	if err == nil {
		r.known.Store(typ, true)
	}
	return err
}

// types returns those that a filter is about, in order. It reads strongly: a type is entered before the first resource of it is
// written.
func (r *registry) types(ctx context.Context, f key.Filter) ([]storage.UnversionedType, error) {
	if f.Kind != storage.Wildcard {
		return []storage.UnversionedType{{Group: f.Group, Kind: f.Kind}}, nil
	}
	var begins []byte
	if f.Group != storage.Wildcard {
		begins = []byte(f.Group + "\x00")
	}
	var types []storage.UnversionedType
	for start := item(nil); ; {
		items, next, err := r.table.query(ctx, true, r.table.pk(classType), begins, start, 0)
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			group, kind, ok := strings.Cut(string(it.bytes(attrSK)), "\x00")
			if !ok {
				return nil, errors.New("the registry of types is malformed")
			}
			types = append(types, storage.UnversionedType{Group: group, Kind: kind})
		}
		if start = next; start == nil {
			return types, nil
		}
	}
}
