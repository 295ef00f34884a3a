package dynamodb

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// columnChecker compares the items of a store with each other. It scans the table, because lists and reads do not find all items: a
// resource in another bucket, or in a bucket or of a type that the registry lacks, and an edge of an owner that no resource names.
type columnChecker struct {
	table  *table
	reader *reader

	pageBytes int // limit of the bytes that a call reads beside the scan
}

// maxItemChecks limits the items that are checked concurrently.
const maxItemChecks = 32

// CheckColumns implements driver.ColumnChecker. It reads the whole table, with the items of other stores in it. A call ends early when it has
// read pageBytes beside the scan, so that a slow table answers it in time.
func (c *columnChecker) CheckColumns(ctx context.Context, after []byte, limit int) (wrong []driver.Key, next []byte, err error) {
	start, err := decodeItemKeys(after)
	if err != nil {
		return nil, nil, err
	}
	items, last, err := c.table.scan(ctx, start, limit)
	if err != nil {
		return nil, nil, err
	}
	check := itemCheck{columnChecker: c, used: make(map[storage.UnversionedType]bucketSet)}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxItemChecks)
	for i, it := range items {
		if check.bytes.Load() >= int64(c.pageBytes) {
			last = items[i-1] // a scan can begin after any item
			break
		}
		g.Go(func() error { return check.item(ctx, it) })
	}
	if err := g.Wait(); err != nil {
		return nil, nil, err
	}
	return check.wrong, encodeItemKeys(last), nil
}

// itemCheck checks the items of one answer.
type itemCheck struct {
	*columnChecker

	bytes atomic.Int64 // that were read beside the scan

	mu    sync.Mutex
	used  map[storage.UnversionedType]bucketSet // of types that were looked up in the registry, after the scan
	wrong []driver.Key
}

func (c *itemCheck) item(ctx context.Context, it item) error {
	var k driver.Key
	var ok bool
	var err error
	switch class, _ := c.table.class(it.bytes(attrPK)); class {
	case classResource:
		k, ok, err = c.resource(ctx, it)
	case classEdge:
		k, ok, err = c.edge(ctx, it)
	default:
		return nil
	}
	if err != nil || ok {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, k)
	return nil
}

// resource checks the item of a resource or a tombstone.
func (c *itemCheck) resource(ctx context.Context, it item) (k driver.Key, ok bool, err error) {
	if k, err = c.table.keyOf(it); err != nil {
		return k, false, err
	}
	h, err := c.table.head(it)
	if err != nil {
		return k, true, nil // reads report the damage
	}
	expires := it[attrExpires] != nil
	if !h.live {
		return k, expires && h.packedData == nil, nil
	}
	if expires || c.table.resource(k).address() != it.address() {
		return k, false, nil
	}
	if ok, err = c.hasBucket(ctx, c.table.typeBucketOf(k)); err != nil || !ok {
		return k, false, err
	}
	parts, err := c.reader.parts(ctx, h)
	if err != nil {
		return k, false, err
	}
	for _, part := range parts {
		c.bytes.Add(int64(len(part.bytes(attrData))))
		if part[attrExpires] != nil { // it is retired, or the resource has been replaced since the scan
			if ok, err = c.isStaleHead(ctx, h); err != nil || !ok {
				return k, false, err
			}
		}
	}
	packed, err := h.join(parts)
	if err != nil {
		return k, true, nil // reads report the damage
	}
	res, err := h.decode(packed)
	if err != nil {
		return k, true, nil // reads report the damage
	}
	var want versionRing
	want.setOwner(res.GetId(), res.GetOwner())
	return k, h.ring.owner == want.owner && h.ring.groupVersion == want.groupVersion, nil
}

// hasBucket reports whether the registry has a type with a bucket.
func (c *itemCheck) hasBucket(ctx context.Context, at typeBucket) (bool, error) {
	c.mu.Lock()
	used, known := c.used[at.UnversionedType]
	c.mu.Unlock()
	if !known {
		it, err := c.table.get(ctx, true, c.table.typeEntry(at.Group, at.Kind))
		if err != nil {
			return false, err
		}
		used = c.table.usedBuckets(it)
		c.mu.Lock()
		c.used[at.UnversionedType] = used
		c.mu.Unlock()
	}
	return used.has(at.bucket), nil
}

// isStaleHead reports whether a resource has another state than a head.
func (c *itemCheck) isStaleHead(ctx context.Context, h *headItem) (bool, error) {
	now, err := c.reader.head(ctx, storage.StrongConsistency, h.key)
	return err == nil && (now == nil || now.ring.token != h.ring.token), err
}

// edge checks an edge: it must be the edge of the resource that it names.
func (c *itemCheck) edge(ctx context.Context, it item) (k driver.Key, ok bool, err error) {
	child, long, err := decodeEdge(it)
	if err != nil {
		return k, false, err
	}
	k = key.Of(child)
	h, err := c.reader.head(ctx, storage.StrongConsistency, k)
	if damaged := (*storage.DamagedError)(nil); errors.As(err, &damaged) {
		return k, true, nil
	}
	if h != nil {
		c.bytes.Add(int64(len(h.packedData)))
	}
	if err != nil || c.matches(it, child, long, h) {
		return k, err == nil, err
	}
	// A transaction may have changed both between the two reads.
	now, err := c.table.getAtomically(ctx, keys(it.bytes(attrPK), it.bytes(attrSK)), c.table.resource(k))
	if err != nil || now[0] == nil {
		return k, err == nil, err
	}
	if child, long, err = decodeEdge(now[0]); err != nil {
		return k, false, err
	}
	h = nil
	if now[1] != nil {
		if h, err = c.table.head(now[1]); err != nil {
			return k, true, nil // reads report the damage
		}
	}
	return k, c.matches(now[0], child, long, h), nil
}

// matches reports whether an item is the edge of a resource that is stored under the key of child.
func (c *itemCheck) matches(it item, child *resourcepb.ID, long bool, h *headItem) bool {
	owner := sha256.Sum256(it.bytes(attrOwner))
	return h != nil && h.live && h.uid == child.GetUid() && h.ring.owner == [16]byte(owner[:16]) &&
		it.address() == c.table.edge(h.ring.owner, h.key).address() && (long || h.ring.groupVersion == groupVersionHash(child))
}

// encodeItemKeys encodes the keys of an item; nil for nil.
func encodeItemKeys(it item) []byte {
	if it == nil {
		return nil
	}
	return protowire.AppendBytes(protowire.AppendBytes(nil, it.bytes(attrPK)), it.bytes(attrSK))
}

// decodeItemKeys is the inverse of encodeItemKeys.
func decodeItemKeys(b []byte) (item, error) {
	if b == nil {
		return nil, nil
	}
	pk, n := protowire.ConsumeBytes(b)
	if n < 0 {
		return nil, fmt.Errorf("%w: not a position of a scan", storage.ErrInvalid)
	}
	sk, m := protowire.ConsumeBytes(b[n:])
	if m < 0 || n+m != len(b) {
		return nil, fmt.Errorf("%w: not a position of a scan", storage.ErrInvalid)
	}
	return keys(pk, sk), nil
}
