package check

import (
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Ops validates the operations of a transaction and returns their keys. The error is a *storage.OpError if one operation caused it.
func Ops(ops []storage.Op, maxOps, maxSize int) ([]key.Key, error) {
	if len(ops) > maxOps {
		return nil, fmt.Errorf("%w: the transaction has %d operations, expected at most %d", storage.ErrTooLarge, len(ops), maxOps)
	}
	keys := make([]key.Key, len(ops))
	seen := make(map[key.Key]int, len(ops))
	total := 0
	for i := range ops {
		k, err := op(&ops[i], maxSize)
		if err != nil {
			return nil, &storage.OpError{Index: i, Err: err}
		}
		if first, twice := seen[k]; twice {
			return nil, &storage.OpError{Index: i, Err: invalid("operation %d has the same key", first)}
		}
		seen[k] = i
		keys[i] = k
		if ops[i].Write != nil {
			total += codec.Size(ops[i].Write)
		}
	}
	if total > MaxSize {
		return nil, fmt.Errorf("%w: the resources of the transaction have %d bytes together, expected at most %d", storage.ErrTooLarge, total, MaxSize)
	}
	return keys, nil
}

func op(o *storage.Op, maxSize int) (key.Key, error) {
	set := 0
	for _, is := range []bool{o.Write != nil, o.Delete != nil, o.Check != nil} {
		if is {
			set++
		}
	}
	if set != 1 {
		return key.Key{}, invalid("%d of Write, Delete and Check are set, expected exactly one", set)
	}
	switch {
	case o.Present && o.Delete == nil:
		return key.Key{}, invalid("Present is set without Delete")
	case o.Write != nil:
		if o.Version != "" {
			return key.Key{}, invalid("Version is set beside Write, whose version is in the resource")
		}
		return Resource(o.Write, maxSize)
	case o.Present:
		return IDWithUid("delete", o.Delete)
	case o.Delete != nil:
		return ID("delete", o.Delete)
	default:
		return checkID(o.Check, o.Version)
	}
}

// checkID validates the id of a Check, which needs a uid unless it requires absence.
func checkID(id *resourcepb.ID, version string) (key.Key, error) {
	if version == "" {
		return ID("check", id)
	}
	return IDWithUid("check", id)
}
