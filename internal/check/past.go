package check

import (
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Revision refuses numbers that are no revisions.
func Revision(revision int64) error {
	if revision <= 0 {
		return invalid("revision is %d, expected 1 or more", revision)
	}
	return nil
}

// Scan validates the options of a scan.
func Scan(opts history.ScanOptions) error {
	switch {
	case opts.Revision < 0:
		return invalid("revision is %d, expected 0 or more", opts.Revision)
	case opts.Limit < 0:
		return invalid("limit is %d, expected 0 or more", opts.Limit)
	case opts.Bytes < 0:
		return invalid("bytes are %d, expected 0 or more", opts.Bytes)
	}
	return nil
}

// Range validates a range and returns the keys of its bounds, nil if unbounded.
func Range(span history.Range) (from, to *key.Key, err error) {
	if from, err = bound("range.from", span.From); err != nil {
		return nil, nil, err
	}
	if to, err = bound("range.to", span.To); err != nil {
		return nil, nil, err
	}
	return from, to, nil
}

// bound validates a bound of a range. Any part may be empty, or text that no key contains, such as the wildcard.
func bound(field string, id *resourcepb.ID) (*key.Key, error) {
	if id == nil {
		return nil, nil
	}
	k := key.Of(id)
	for _, p := range []struct{ field, value string }{
		{".type.group", k.Group},
		{".type.kind", k.Kind},
		{".tenancy.partition", k.Partition},
		{".tenancy.namespace", k.Namespace},
		{".name", k.Name},
	} {
		if err := legal(field+p.field, p.value, MaxPart+1); err != nil { // one byte longer: the bound directly after the longest name
			return nil, err
		}
	}
	return &k, nil
}

// Swap validates a swap and returns its key. maxSize is as for Resource.
func Swap(swap history.Swap, maxSize int) (key.Key, error) {
	switch {
	case (swap.Write == nil) == (swap.Delete == nil):
		return key.Key{}, invalid("the swap sets both or none of Write and Delete, expected exactly one")
	case swap.Expect < 0:
		return key.Key{}, invalid("expect is %d, expected a revision, or 0 for nothing stored", swap.Expect)
	case swap.Delete != nil:
		return ID("id", swap.Delete)
	}
	return Resource(swap.Write, maxSize)
}
