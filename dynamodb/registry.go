package dynamodb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
	"github.com/ashlar-dev/storage/internal/batch"
)

// registry is the list of all types that a store has ever contained, one item each, with the buckets that each has ever used. It makes a list
// with wildcards one query for each used bucket of each type.
//
// A bucket of a type is entered before its first resource is created. The handle remembers the entries that it has seen, so that a creation
// needs no request for them. A table that is deleted and restored under its name may lack them, so the store has a random mark, which every
// new entry changes: a state of the store with the same mark has the same entries. The handle reads the mark with the fence, and
// forgets its entries if it differs.
//
// A list must query every used bucket, and may query others. It begins with the buckets that the handle has seen, in whatever state of the store,
// while it reads the set of used buckets strongly, and then queries those that are new. If all buckets were seen, it reads no set.
type registry struct {
	table   *table
	store   driver.StoreID
	batcher *batch.Batcher[[]typeBucket, struct{}] // one batch at a time, so that calls of this handle do not conflict

	mu         sync.Mutex
	reads      uint64 // of the mark with the fence
	mark       []byte
	markedSets map[storage.UnversionedType]bucketSet // entries of every state with the mark
	knownSets  map[storage.UnversionedType]bucketSet // the last known sets, for lists
}

func newRegistry(t *table, id driver.StoreID) *registry {
	r := &registry{table: t, store: id, knownSets: make(map[storage.UnversionedType]bucketSet)}
	r.batcher = batch.New(batch.Options[[]typeBucket]{
		MaxBytes: maxItems - 1, Size: func(at []typeBucket) int { return len(at) }, // a transaction has an item for each type, and one for the mark
	}, func(ctx context.Context, calls []*batch.Call[[]typeBucket, struct{}]) {
		var at []typeBucket
		for _, c := range calls {
			at = append(at, c.Request...)
		}
		err := r.enterAll(ctx, at)
		for _, c := range calls {
			c.Done(struct{}{}, err)
		}
	})
	return r
}

// errNotEntered means that a creation was not sent because its type could not be entered in time.
var errNotEntered = request.NewError(request.NotApplied, "the registry of types was not answered")

// errOtherStore means that the table was deleted and created again.
var errOtherStore = request.NewError(request.Rejected, "the table has another store now: close the handle, and open the table again")

// enter adds buckets of types before resources are created in them. The caller has a permission to write, which a read of the mark preceded.
func (r *registry) enter(ctx context.Context, at []typeBucket) error {
	if known, _ := r.knownEntries(at); known.has(at) {
		return nil
	}
	_, err := r.batcher.Do(ctx, at)
	if err != nil && request.Classify(err) != request.Rejected {
		err = fmt.Errorf("%w: %w", errNotEntered, err)
	}
	return err
}

func (r *registry) enterAll(ctx context.Context, at []typeBucket) error {
	for outdated := false; ; {
		e, ok := r.knownEntries(at)
		if ok && e.has(at) {
			return nil
		}
		if !ok || outdated {
			var err error
			if e, err = r.read(ctx, at); err != nil {
				return err
			}
			outdated = false
			if e.mark != nil && e.has(at) {
				r.remember(e, e.mark)
				continue
			}
		}
		next := newRevision()
		switch _, err := r.table.transact(ctx, append(e.add(r.table, at), r.setMark(e.mark, next))...); {
		case err == nil:
			r.remember(e, next)
		case errors.Is(err, errCondition): // another process has made an entry, or the table was restored
			outdated = true
		default:
			return err
		}
	}
}

// entries are the used buckets of some types.
type entries struct {
	used  map[storage.UnversionedType]bucketSet
	mark  []byte // of the store in this state; nil for a store of an older version that has none
	reads uint64 // of the mark with the fence, before the entries were read
}

func (e *entries) has(at []typeBucket) bool {
	for _, b := range at {
		if used := e.used[b.UnversionedType]; !used.has(b.bucket) {
			return false
		}
	}
	return true
}

// add adds the missing ones of some buckets, and returns the changes of the table.
func (e *entries) add(t *table, at []typeBucket) []types.TransactWriteItem {
	changed := make(map[storage.UnversionedType]bool)
	for _, b := range at {
		if used := e.used[b.UnversionedType]; !used.has(b.bucket) {
			e.used[b.UnversionedType], changed[b.UnversionedType] = t.withBucket(used, b.bucket), true
		}
	}
	puts := make([]types.TransactWriteItem, 0, len(changed)+1)
	for typ := range changed {
		puts = append(puts, t.on(types.TransactWriteItem{Put: &types.Put{Item: t.typeItem(typ, e.used[typ])}}, condition{}))
	}
	return puts
}

// knownEntries returns the remembered entries of types, and reports whether all of them are remembered.
func (r *registry) knownEntries(at []typeBucket) (e entries, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e = entries{mark: r.mark, reads: r.reads, used: make(map[storage.UnversionedType]bucketSet, len(at))}
	ok = true
	for _, b := range at {
		used, remembered := r.markedSets[b.UnversionedType]
		if ok = ok && remembered; remembered {
			e.used[b.UnversionedType] = used
		}
	}
	return e, ok
}

// read reads the entries of types, and the mark, at one moment.
func (r *registry) read(ctx context.Context, at []typeBucket) (entries, error) {
	e, _ := r.knownEntries(nil)
	wanted := []item{r.table.store()}
	for _, b := range at {
		if _, again := e.used[b.UnversionedType]; !again {
			e.used[b.UnversionedType] = bucketSet{}
			wanted = append(wanted, r.table.typeEntry(b.Group, b.Kind))
		}
	}
	items, err := r.table.getAtomically(ctx, wanted...)
	if err == nil {
		err = r.checkStore(items[0])
	}
	if err != nil {
		return e, err
	}
	e.mark = items[0].bytes(attrVersion)
	for i, it := range items[1:] {
		typ, _ := typeOf(wanted[i+1])
		e.used[typ] = r.table.usedBuckets(it)
	}
	return e, nil
}

// setMark replaces the mark. A store of an older version has none.
func (r *registry) setMark(mark, next []byte) types.TransactWriteItem {
	on := condition{"id = :id AND attribute_not_exists(v)", item{":id": binaryValue(r.store[:]), ":next": binaryValue(next)}}
	if mark != nil {
		on.text, on.values[":v"] = "id = :id AND v = :v", binaryValue(mark)
	}
	return r.table.on(types.TransactWriteItem{Update: &types.Update{
		Key: r.table.store(), UpdateExpression: aws.String("SET v = :next"),
	}}, on)
}

// remember remembers entries with which the store had the mark next. If the mark has been read since the entries were read, they may be those of
// a table that was deleted before that read, so they are ignored.
func (r *registry) remember(e entries, next []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reads != e.reads {
		return
	}
	r.keepAt(e.mark)
	r.mark = next
	maps.Copy(r.markedSets, e.used)
	maps.Copy(r.knownSets, e.used)
}

// keepAt forgets all entries unless they were seen at that mark. The caller holds the lock.
func (r *registry) keepAt(mark []byte) {
	if r.markedSets == nil || !bytes.Equal(r.mark, mark) {
		r.mark, r.markedSets = mark, make(map[storage.UnversionedType]bucketSet)
	}
}

// refresh reads the mark.
func (r *registry) refresh(ctx context.Context) error {
	it, err := r.table.get(ctx, true, r.table.store())
	if err == nil {
		err = r.checkStore(it)
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reads++
	r.keepAt(it.bytes(attrVersion))
	return nil
}

// checkStore returns an error if another store has replaced the table's since it was opened.
func (r *registry) checkStore(it item) error {
	if !bytes.Equal(it.bytes(attrStoreID), r.store[:]) {
		return errOtherStore
	}
	return nil
}

// listedType is a type with the buckets that a list begins with.
type listedType struct {
	storage.UnversionedType
	buckets  bucketSet
	complete bool // the type has no resources in other buckets
}

// types returns the types that match a filter, in order. It reads strongly, because a type is entered before its first resource is
// written.
func (r *registry) types(ctx context.Context, f key.Filter) ([]listedType, error) {
	if f.Kind != storage.Wildcard {
		return []listedType{r.lastSeen(storage.UnversionedType{Group: f.Group, Kind: f.Kind})}, nil
	}
	var begins []byte
	if f.Group != storage.Wildcard {
		begins = []byte(f.Group + "\x00")
	}
	var types []listedType
	for start := item(nil); ; {
		items, next, err := r.table.query(ctx, true, r.table.pk(classType), begins, start, 0)
		if err != nil {
			return nil, err
		}
		for _, it := range items {
			typ, ok := typeOf(it)
			if !ok {
				return nil, errors.New("the registry of types is malformed")
			}
			types = append(types, listedType{typ, r.table.usedBuckets(it), true})
		}
		if start = next; start == nil {
			return types, nil
		}
	}
}

// lastSeen returns a type with the buckets that were seen last.
func (r *registry) lastSeen(typ storage.UnversionedType) listedType {
	all := r.table.allBuckets()
	if !r.table.hasUsedSets {
		return listedType{typ, all, true}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.knownSets[typ]
	return listedType{typ, seen, seen == all}
}

// usedBuckets reads the buckets that a type uses, strongly.
func (r *registry) usedBuckets(ctx context.Context, typ storage.UnversionedType) (bucketSet, error) {
	it, err := r.table.get(ctx, true, r.table.typeEntry(typ.Group, typ.Kind))
	used := r.table.usedBuckets(it)
	if it != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.knownSets[typ] = used
	}
	return used, err
}

// typeOf returns the type of an entry.
func typeOf(it item) (typ storage.UnversionedType, ok bool) {
	typ.Group, typ.Kind, ok = strings.Cut(string(it.bytes(attrSK)), "\x00")
	return typ, ok
}
