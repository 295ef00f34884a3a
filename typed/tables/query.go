package tables

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Query selects objects of a table. Create one with the methods of an [Index], or with [Metadata], [Owner], [NamePrefix], [In], [And], [Or] and
// [Not].
//
// A query uses an index if it can. Otherwise it scans the table. The scan is limited to a tenancy or a name prefix if the query is In
// or NamePrefix, or an And that contains one of them.
type Query struct{ query }

type query interface {
	// resolve returns the query for one table, with the numbers of its indexes.
	resolve(*table) (query, error)
	// match reports whether the query selects an entry.
	match(*entry) bool
	// spans returns ranges of the index tree that together contain every selected entry, and the cost of scanning them.
	spans(to []textRange) ([]textRange, cost)
	// restrict narrows a filter to the keys of selected objects.
	restrict(*key.Filter)
}

// cost is the cost of finding the entries that a query selects.
type cost int

const (
	costValue cost = iota // single values of an index
	costRange             // a range of values
	costAll               // a scan of all objects of the table
)

// textRange is a range of texts in the index tree, from from inclusive to to exclusive.
type textRange struct{ from, to string }

// single reports whether the range holds at most one text. Its entries are then in key order.
func (s textRange) single() bool { return s.to == s.from+"\x00" }

// Metadata matches the objects with a metadata value under a name. It uses an index.
func Metadata(name, value string) Query {
	from := metadataValue(name, value)
	return Query{&rangeQuery{indexNumber: metadataIndex, from: from, to: from + "\x00"}}
}

// Owner matches the objects of an owner, or of all incarnations of the owner if id has no uid. It uses an index.
func Owner(id *resourcepb.ID) Query {
	from := ownerValue(id)
	to := from + "\x00"
	if id.GetUid() == "" {
		to = prefixEnd(from)
	}
	return Query{&rangeQuery{indexNumber: ownerIndex, from: from, to: to}}
}

// NamePrefix matches the objects with a name prefix.
func NamePrefix(prefix string) Query { return Query{namePrefix(prefix)} }

// In matches the objects of a tenancy. A unit of [storage.Wildcard] matches every value.
func In(tenancy *resourcepb.Tenancy) Query {
	return Query{tenancyQuery{tenancy.GetPartition(), tenancy.GetNamespace()}}
}

// And matches the objects that all queries match. And() matches everything.
func And(queries ...Query) Query { return Query{and(queries)} }

// Or matches the objects that at least one query matches. Or() matches nothing.
func Or(queries ...Query) Query { return Query{or(queries)} }

// Not matches the objects that a query does not match.
func Not(q Query) Query { return Query{not{q}} }

// rangeQuery matches the entries with a value in a range of one index.
type rangeQuery struct {
	index       string       // name of a program's index
	indexType   reflect.Type // type of the Index that created the query; nil for a built-in index
	indexNumber int
	from, to    string
	toEnd       bool // the range extends to the end of the index; to is ignored
	cost        cost
}

func (q *rangeQuery) resolve(t *table) (query, error) {
	out := *q
	if q.indexType != nil {
		at, known := t.indexes[q.index]
		if !known || at.indexType != q.indexType {
			return nil, fmt.Errorf("%w: %s has no index %q of type %v", storage.ErrInvalid, t, q.index, q.indexType)
		}
		out.indexNumber = at.indexNumber
	}
	p := indexPrefix(t.number, out.indexNumber)
	out.from = p + q.from
	if out.to = p + q.to; q.toEnd {
		out.to = prefixEnd(p)
	}
	return &out, nil
}

func (*rangeQuery) restrict(*key.Filter) {}

func (q *rangeQuery) match(e *entry) bool {
	return slices.ContainsFunc(e.values, func(v string) bool { return v >= q.from && v < q.to })
}

func (q *rangeQuery) spans(to []textRange) ([]textRange, cost) {
	return append(to, textRange{q.from, q.to}), q.cost
}

type namePrefix string

func (q namePrefix) restrict(f *key.Filter) {
	if strings.HasPrefix(string(q), f.NamePrefix) {
		f.NamePrefix = string(q)
	}
}

func (q namePrefix) resolve(*table) (query, error)         { return q, nil }
func (q namePrefix) match(e *entry) bool                   { return strings.HasPrefix(e.id.GetName(), string(q)) }
func (q namePrefix) spans([]textRange) ([]textRange, cost) { return nil, costAll }

type tenancyQuery struct{ partition, namespace string }

func (q tenancyQuery) restrict(f *key.Filter) {
	if f.Partition == storage.Wildcard && f.Namespace == storage.Wildcard {
		f.Partition, f.Namespace = q.partition, q.namespace
	}
}

func (q tenancyQuery) resolve(*table) (query, error)         { return q, nil }
func (q tenancyQuery) spans([]textRange) ([]textRange, cost) { return nil, costAll }
func (q tenancyQuery) match(e *entry) bool {
	in := e.id.GetTenancy()
	return (q.partition == in.GetPartition() || q.partition == storage.Wildcard) &&
		(q.namespace == in.GetNamespace() || q.namespace == storage.Wildcard)
}

type and []Query

func (q and) resolve(t *table) (query, error) {
	out, err := resolveAll(q, t)
	return and(out), err
}

func (q and) restrict(f *key.Filter) {
	for i := range q {
		q[i].restrict(f)
	}
}

func (q and) match(e *entry) bool {
	for i := range q {
		if !q[i].match(e) {
			return false
		}
	}
	return true
}

// spans returns the spans of the cheapest member, because an entry must match every member.
func (q and) spans(to []textRange) (spans []textRange, c cost) {
	c = costAll
	for i := range q {
		if s, less := q[i].spans(nil); less < c {
			spans, c = s, less
		}
	}
	return append(to, spans...), c
}

type or []Query

func (q or) resolve(t *table) (query, error) {
	out, err := resolveAll(q, t)
	return or(out), err
}

func (or) restrict(*key.Filter) {}

func (q or) match(e *entry) bool {
	return slices.ContainsFunc(q, func(one Query) bool { return one.match(e) })
}

func (q or) spans(to []textRange) ([]textRange, cost) {
	highest := costValue
	for i := range q {
		s, c := q[i].spans(to)
		if to, highest = s, max(highest, c); highest == costAll {
			return nil, costAll
		}
	}
	return to, highest
}

type not struct{ Query }

func (q not) resolve(t *table) (query, error) {
	out, err := resolveAll([]Query{q.Query}, t)
	if err != nil {
		return nil, err
	}
	return not{out[0]}, nil
}

func (not) restrict(*key.Filter)                    {}
func (q not) match(e *entry) bool                   { return !q.query.match(e) }
func (q not) spans([]textRange) ([]textRange, cost) { return nil, costAll }

func resolveAll(queries []Query, t *table) ([]Query, error) {
	out := make([]Query, len(queries))
	for i, q := range queries {
		if q.query == nil {
			return nil, fmt.Errorf("%w: the query is the zero Query", storage.ErrInvalid)
		}
		one, err := q.query.resolve(t)
		if err != nil {
			return nil, err
		}
		out[i] = Query{one}
	}
	return out, nil
}

// sortEntries sorts entries in the order of a query and removes duplicates.
func sortEntries(q query, found []*entry) []*entry {
	order := orderOf(q)
	if !slices.IsSortedFunc(found, order) {
		slices.SortFunc(found, order)
	}
	return slices.Compact(found)
}

// orderOf returns the order of a query's list: key order, or first by value if the query scans one range of values.
func orderOf(q query) func(a, b *entry) int {
	spans, c := q.spans(nil)
	if c != costRange || len(spans) != 1 {
		return func(a, b *entry) int { return a.key.Compare(b.key) }
	}
	return func(a, b *entry) int {
		return cmp.Or(strings.Compare(a.lowestValue(spans[0]), b.lowestValue(spans[0])), a.key.Compare(b.key))
	}
}

// lowestValue returns the lowest of the entry's values in a range.
func (e *entry) lowestValue(in textRange) (lowest string) {
	for _, v := range e.values {
		if v >= in.from && v < in.to && (lowest == "" || v < lowest) {
			lowest = v
		}
	}
	return lowest
}
