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

// Query says which objects of a table are meant. Make one by the methods of an [Index], or by [Metadata], [Owner], [NamePrefix], [In],
// [And], [Or] and [Not].
//
// A query looks at an index, if it has one to look at, and otherwise at all objects of the table, or those of a tenancy or
// with a prefix, if it is one by In or NamePrefix, or an And that has one.
type Query struct{ query }

type query interface {
	// resolve returns the query for one table, with the places of its indexes.
	resolve(*table) (query, error)
	// match reports whether an entry is meant.
	match(*entry) bool
	// spans returns parts of the index tree that together have every entry that is meant, and what kind of parts they are.
	spans(to []textRange) ([]textRange, cost)
	// restrict leaves out of a filter keys of objects that are not meant.
	restrict(*key.Filter)
}

// cost is what it takes to find the entries that a query means.
type cost int

const (
	costValue cost = iota // one value of an index, or several such
	costRange             // a range of values
	costAll               // a look at all objects of the table
)

// textRange is a part of the index tree: the texts from from up to to, which is not part of it.
type textRange struct{ from, to string }

// single reports whether there is one text at most in a span, so that what stands there is in the order of its keys.
func (s textRange) single() bool { return s.to == s.from+"\x00" }

// Metadata matches the objects whose metadata have this value under this name. It uses an index.
func Metadata(name, value string) Query {
	from := metadataValue(name, value)
	return Query{&rangeQuery{indexNumber: metadataIndex, from: from, to: from + "\x00"}}
}

// Owner matches the objects of an owner; if id has no uid, those of all its incarnations. It uses an index.
func Owner(id *resourcepb.ID) Query {
	from := ownerValue(id)
	to := from + "\x00"
	if id.GetUid() == "" {
		to = prefixEnd(from)
	}
	return Query{&rangeQuery{indexNumber: ownerIndex, from: from, to: to}}
}

// NamePrefix matches the objects whose names begin with a prefix.
func NamePrefix(prefix string) Query { return Query{namePrefix(prefix)} }

// In matches the objects of a tenancy. A unit that is [storage.Wildcard] matches every value.
func In(tenancy *resourcepb.Tenancy) Query {
	return Query{tenancyQuery{tenancy.GetPartition(), tenancy.GetNamespace()}}
}

// And matches what all queries match. And() matches everything.
func And(queries ...Query) Query { return Query{and(queries)} }

// Or matches what one query or more matches. Or() matches nothing.
func Or(queries ...Query) Query { return Query{or(queries)} }

// Not matches what a query does not match.
func Not(q Query) Query { return Query{not{q}} }

// rangeQuery matches what has a value in a part of one index.
type rangeQuery struct {
	index       string       // its name, for one of the program's
	indexType   reflect.Type // the Index that made the query; nil for one that every table has
	indexNumber int
	from, to    string
	toEnd       bool // it goes on to the end of the index, whatever to is
	cost        cost
}

func (q *rangeQuery) resolve(t *table) (query, error) {
	out := *q
	if q.indexType != nil {
		at, known := t.indexes[q.index]
		if !known || at.indexType != q.indexType {
			return nil, fmt.Errorf("%w: %s has no index %q of the type %v", storage.ErrInvalid, t, q.index, q.indexType)
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

// spans returns those of the cheapest member: what the others mean is found among them.
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
	most := costValue
	for i := range q {
		s, c := q[i].spans(to)
		if to, most = s, max(most, c); most == costAll {
			return nil, costAll
		}
	}
	return to, most
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
			return nil, fmt.Errorf("%w: the zero Query", storage.ErrInvalid)
		}
		one, err := q.query.resolve(t)
		if err != nil {
			return nil, err
		}
		out[i] = Query{one}
	}
	return out, nil
}

// sortEntries puts entries in the order of a query, each once.
func sortEntries(q query, found []*entry) []*entry {
	order := orderOf(q)
	if !slices.IsSortedFunc(found, order) {
		slices.SortFunc(found, order)
	}
	return slices.Compact(found)
}

// orderOf returns the order in which a query lists: that of keys or, if it looks at one range of values, that of these first.
func orderOf(q query) func(a, b *entry) int {
	spans, c := q.spans(nil)
	if c != costRange || len(spans) != 1 {
		return func(a, b *entry) int { return a.key.Compare(b.key) }
	}
	return func(a, b *entry) int {
		return cmp.Or(strings.Compare(a.lowestValue(spans[0]), b.lowestValue(spans[0])), a.key.Compare(b.key))
	}
}

// lowestValue returns the lowest of the entry's values in a part of the index tree.
func (e *entry) lowestValue(in textRange) (lowest string) {
	for _, v := range e.values {
		if v >= in.from && v < in.to && (lowest == "" || v < lowest) {
			lowest = v
		}
	}
	return lowest
}
