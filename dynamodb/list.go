package dynamodb

import (
	"context"
	"errors"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Scan implements driver.Driver.
func (b *handle) Scan(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, rows driver.Rows) (*position, error) {
	at, err := b.source.before(ctx)
	if err == nil {
		err = b.List(ctx, consistency, f, rows)
	}
	return at, err
}

// List implements driver.Lister. Each resource is read at the consistency asked for, but DynamoDB holds no snapshot: what is
// written while the list is read may be in it or not.
func (b *handle) List(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, rows driver.Rows) error {
	return b.scan(ctx, consistency, scanRange{filter: *f}, func(h *head) (bool, error) {
		if !h.live {
			return true, nil
		}
		res, err := b.resourceOf(ctx, h)
		if res != nil && err == nil {
			err = rows.AddResource(res)
		}
		return true, err
	})
}

// resourceOf decodes a head that a scan found, nil if it has been deleted meanwhile.
func (b *handle) resourceOf(ctx context.Context, h *head) (*resourcepb.Resource, error) {
	packed, err := b.gather(ctx, h)
	if errors.Is(err, errPartsGone) {
		_, res, err := b.get(ctx, storage.StrongConsistency, h.key)
		return res, err
	}
	if err != nil {
		return nil, err
	}
	return h.decode(packed)
}

// scanRange is what a scan is about: a filter, from the key after another on.
type scanRange struct {
	filter key.Filter
	after  *key.Key
	limit  int // of the items in the first answer, 0: as many as DynamoDB gives; those after it are larger and larger
}

// maxLimit bounds the items in an answer. Where few of them match, an answer of the size of the page would bring next to none.
const maxLimit = 1000

// scan visits the heads, tombstones among them, that match the filter, in order, until visit returns false.
func (b *handle) scan(ctx context.Context, consistency storage.ReadConsistency, r scanRange, visit func(*head) (bool, error)) error {
	kinds, err := b.kinds(ctx, r.filter)
	if err != nil {
		return err
	}
	for _, t := range kinds {
		if r.after != nil && strings.Compare(t.Group+"\x00"+t.Kind, r.after.Group+"\x00"+r.after.Kind) < 0 {
			continue
		}
		one := r
		one.filter.Group, one.filter.Kind = t.Group, t.Kind
		if r.after != nil && (r.after.Group != t.Group || r.after.Kind != t.Kind) {
			one.after = nil
		}
		more, err := b.scanKind(ctx, consistency, one, visit)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// kinds returns the types that a filter is about, in order. The registry is read strongly: a type is entered before the first
// resource of it is written.
func (b *handle) kinds(ctx context.Context, f key.Filter) ([]storage.UnversionedType, error) {
	if f.Kind != storage.Wildcard {
		return []storage.UnversionedType{{Group: f.Group, Kind: f.Kind}}, nil
	}
	var begins []byte
	if f.Group != storage.Wildcard {
		begins = []byte(f.Group + "\x00")
	}
	var kinds []storage.UnversionedType
	for start := item(nil); ; {
		items, next, err := b.query(ctx, true, b.pk(classType), begins, start, 0)
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			group, kind, ok := strings.Cut(string(it.bytes(attrSK)), "\x00")
			if !ok {
				return nil, errors.New("the registry of types is malformed")
			}
			kinds = append(kinds, storage.UnversionedType{Group: group, Kind: kind})
		}
		if start = next; start == nil {
			return kinds, nil
		}
	}
}

// scanKind scans one type. It reports whether to go on.
func (b *handle) scanKind(ctx context.Context, consistency storage.ReadConsistency, r scanRange, visit func(*head) (bool, error)) (bool, error) {
	f := r.filter
	prefix, exact := f.Prefix()
	begins := prefix[len(f.Group)+len(f.Kind)+2:]
	var start item
	from := ""
	if r.after != nil {
		start, from = b.resource(*r.after), string(r.after.Bytes())
	}
	for {
		strong := consistency == storage.StrongConsistency || b.seen.distrust()
		heads, next, upTo, err := b.scanPage(ctx, strong, f, begins, start, r.limit)
		if err != nil {
			return false, err
		}
		if !strong && (b.anyStale(heads) || b.seen.missing(string(prefix), from, upTo, heads)) {
			if heads, next, upTo, err = b.scanPage(ctx, true, f, begins, start, r.limit); err != nil {
				return false, err
			}
		}
		for _, h := range heads {
			b.seen.note(h.key, h)
			if !exact && !f.Match(&h.key) {
				continue
			}
			if more, err := visit(h); err != nil || !more {
				return false, err
			}
		}
		r.limit = min(2*r.limit, maxLimit)
		if start, from = next, upTo; start == nil {
			return true, nil
		}
	}
}

func (b *handle) anyStale(heads []*head) bool {
	for _, h := range heads {
		if b.seen.stale(h.key, h) {
			return true
		}
	}
	return false
}

// scanPage reads one answer. upTo is the key where the next one begins, "" if this is the last.
func (b *handle) scanPage(ctx context.Context, strong bool, f key.Filter, begins []byte, start item, limit int) (heads []*head, next item, upTo string, err error) {
	items, next, err := b.query(ctx, strong, b.typePK(f.Group, f.Kind), begins, start, limit)
	if err != nil {
		return nil, nil, "", err
	}
	heads = make([]*head, 0, len(items))
	for _, it := range items {
		h, err := b.head(it)
		var damaged *storage.DamagedError
		switch {
		case err == nil:
			heads = append(heads, h)
		case !errors.As(err, &damaged) || f.Match(new(key.Of(damaged.ID))):
			return nil, nil, "", err
		}
	}
	if next != nil {
		k, err := b.keyOf(next)
		if err != nil {
			return nil, nil, "", err
		}
		upTo = string(k.Bytes())
	}
	return heads, next, upTo, nil
}

// query reads one answer's worth of a partition, from after start on.
func (b *handle) query(ctx context.Context, strong bool, pk, begins []byte, start item, limit int) (items []item, next item, err error) {
	in := &dynamodb.QueryInput{
		TableName: &b.table, ConsistentRead: &strong, ExclusiveStartKey: start,
		KeyConditionExpression:    aws.String("pk = :pk"),
		ExpressionAttributeValues: item{":pk": binaryValue(pk)},
		ReturnConsumedCapacity:    b.opts.capacity(),
	}
	if len(begins) > 0 {
		in.KeyConditionExpression = aws.String("pk = :pk AND begins_with(sk, :sk)")
		in.ExpressionAttributeValues[":sk"] = binaryValue(begins)
	}
	if limit > 0 {
		in.Limit = aws.Int32(int32(limit))
	}
	var out *dynamodb.QueryOutput
	_, err = b.call(ctx, func(option func(*dynamodb.Options)) error {
		var err error
		out, err = b.db.Query(ctx, in, option)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	b.opts.spent(out.ConsumedCapacity)
	items = make([]item, len(out.Items))
	for i, it := range out.Items {
		items[i] = it
	}
	if len(out.LastEvaluatedKey) > 0 {
		next = out.LastEvaluatedKey
	}
	return items, next, nil
}
