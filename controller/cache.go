package controller

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Cache reads the resources of the watched types from memory. It includes the writes of the process. It is safe for concurrent use, and its results
// belong to the caller. The types and index names are those that controllers of the manager were created with; others are errors.
type Cache interface {
	// Get returns the first resource that an index finds, nil for none.
	Get(t *resourcepb.Type, index string, args ...any) (*resourcepb.Resource, error)
	// List returns the resources that an index finds, in the order of their index keys.
	List(t *resourcepb.Type, index string, args ...any) ([]*resourcepb.Resource, error)
	// ListIterator is List, one resource at a time, of one state of the cache.
	ListIterator(t *resourcepb.Type, index string, args ...any) (ResourceIterator, error)
	// Parents returns the resources whose index key is a prefix of the given one.
	Parents(t *resourcepb.Type, index string, args ...any) ([]*resourcepb.Resource, error)
	// ParentsIterator is Parents, one resource at a time.
	ParentsIterator(t *resourcepb.Type, index string, args ...any) (ResourceIterator, error)
	// Query calls a query that a controller was created with.
	Query(name string, args ...any) (ResourceIterator, error)
}

// ResourceIterator returns resources one by one.
type ResourceIterator interface {
	// Next returns the next resource, nil after the last one.
	Next() *resourcepb.Resource
}

// Query combines reads of a cache under a name.
type Query func(c Cache, args ...any) (ResourceIterator, error)

// cache implements Cache.
type cache struct {
	informers informers
	queries   map[string]Query
}

// informerOf returns the copy of a type.
func (c *cache) informerOf(t *resourcepb.Type) (*informer, error) {
	if i := c.informers[storage.UnversionedTypeFrom(t)]; i != nil {
		return i, nil
	}
	return nil, fmt.Errorf("the cache has no resources of the type %s: add it with WithWatch", typeName(t))
}

// rows returns the rows that an index finds. They are shared.
func (c *cache) rows(t *resourcepb.Type, index string, args []any) (iter.Seq[*row], error) {
	if index == IDIndex {
		k, _, err := keyArgument(IDIndex, args)
		if err != nil {
			return nil, err
		}
		k.Group, k.Kind = t.GetGroup(), t.GetKind()
		return c.rowsByID(t, k)
	}
	view, k, isPrefix, err := c.indexQuery(t, index, args)
	if err != nil {
		return nil, err
	}
	from := indexKey(index, k)
	to := from + "\x00"
	if isPrefix {
		to = string(key.PrefixEnd([]byte(from)))
	}
	return view.Between(from, to), nil
}

// indexQuery returns a view of the resources of a type, and what the query of one of its indexes returns. It fails if the index lacks a resource: a
// reconciler that misses a resource could create it again.
func (c *cache) indexQuery(t *resourcepb.Type, index string, args []any) (view *replica.View[entry], k string, isPrefix bool, err error) {
	i, err := c.informerOf(t)
	if err != nil {
		return nil, "", false, err
	}
	at := slices.IndexFunc(i.indexes, func(x *Index) bool { return x.name == index })
	if at < 0 {
		return nil, "", false, fmt.Errorf("the type %s has no index %q", typeName(t), index)
	}
	view = i.copy.View()
	lacking := failureKey(index)
	for r := range view.Between(lacking, lacking+"\x00") {
		return nil, "", false, fmt.Errorf("the index %q of the type %s lacks the resource %s: the function of the index panics for it", index, typeName(t), r.Key)
	}
	k, isPrefix, err = i.indexes[at].query(args)
	return view, k, isPrefix, err
}

// rowsByID returns the row of a complete id, and the rows of a tenancy for an id without a name.
func (c *cache) rowsByID(t *resourcepb.Type, k key.Key) (iter.Seq[*row], error) {
	i, err := c.informerOf(t)
	if err != nil {
		return nil, err
	}
	if k.Name == "" {
		any := func(unit string) string {
			if unit == "" {
				return storage.Wildcard
			}
			return unit
		}
		return i.copy.View().Select(key.Filter{Group: k.Group, Kind: k.Kind, Partition: any(k.Partition), Namespace: any(k.Namespace)}), nil
	}
	return func(yield func(*row) bool) {
		if r := i.copy.Get(k); r != nil {
			yield(r)
		}
	}, nil
}

// parents returns the rows whose index key is a prefix of the given one.
func (c *cache) parents(t *resourcepb.Type, index string, args []any) (iter.Seq[*row], error) {
	if index == IDIndex {
		return c.rows(t, index, args)
	}
	view, k, _, err := c.indexQuery(t, index, args)
	if err != nil {
		return nil, err
	}
	return func(yield func(*row) bool) {
		for n := range len(k) + 1 {
			at := indexKey(index, k[:n])
			for r := range view.Between(at, at+"\x00") {
				if !yield(r) {
					return
				}
			}
		}
	}, nil
}

func (c *cache) Get(t *resourcepb.Type, index string, args ...any) (*resourcepb.Resource, error) {
	rows, err := c.rows(t, index, args)
	if err != nil {
		return nil, err
	}
	for r := range rows {
		return codec.Clone(r.Value.res), nil
	}
	return nil, nil
}

func (c *cache) List(t *resourcepb.Type, index string, args ...any) ([]*resourcepb.Resource, error) {
	return collect(c.rows(t, index, args))
}

func (c *cache) ListIterator(t *resourcepb.Type, index string, args ...any) (ResourceIterator, error) {
	return iterate(c.rows(t, index, args))
}

func (c *cache) Parents(t *resourcepb.Type, index string, args ...any) ([]*resourcepb.Resource, error) {
	return collect(c.parents(t, index, args))
}

func (c *cache) ParentsIterator(t *resourcepb.Type, index string, args ...any) (ResourceIterator, error) {
	return iterate(c.parents(t, index, args))
}

func (c *cache) Query(name string, args ...any) (ResourceIterator, error) {
	query := c.queries[name]
	if query == nil {
		return nil, fmt.Errorf("the cache has no query %q", name)
	}
	return query(c, args...)
}

// collect returns copies of the resources of rows.
func collect(rows iter.Seq[*row], err error) ([]*resourcepb.Resource, error) {
	if err != nil {
		return nil, err
	}
	var all []*resourcepb.Resource
	for r := range rows {
		all = append(all, codec.Clone(r.Value.res))
	}
	return all, nil
}

// iterate returns an iterator over rows. The rows are collected first: an iterator that is not read to its end must not retain a goroutine.
func iterate(rows iter.Seq[*row], err error) (ResourceIterator, error) {
	if err != nil {
		return nil, err
	}
	return &rowIterator{rows: slices.Collect(rows)}, nil
}

type rowIterator struct{ rows []*row }

// Next implements ResourceIterator.
func (i *rowIterator) Next() *resourcepb.Resource {
	if len(i.rows) == 0 {
		return nil
	}
	next := i.rows[0].Value.res
	i.rows = i.rows[1:]
	return codec.Clone(next)
}

// withoutSharing returns a copy of a cached resource that shares only the encoded payload, which decoding does not modify.
func withoutSharing(res *resourcepb.Resource) *resourcepb.Resource {
	c := codec.WithVersion(res, res.GetVersion())
	c.Id, c.Owner = codec.CloneID(res.GetId()), codec.CloneID(res.GetOwner())
	c.Metadata, c.Status, c.Ttl = maps.Clone(res.GetMetadata()), clonedStatus(res.GetStatus()), proto.CloneOf(res.GetTtl())
	return c
}

func clonedStatus(status map[string]*resourcepb.Status) map[string]*resourcepb.Status {
	if status == nil {
		return nil
	}
	all := make(map[string]*resourcepb.Status, len(status))
	for k, s := range status {
		all[k] = proto.CloneOf(s)
	}
	return all
}
