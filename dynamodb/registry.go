package dynamodb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
)

// registry is the list of all types that a store has ever contained, one item each. It makes a list with wildcards one query for
// each type.
//
// A type is entered before its first resource is created. The handle remembers the entries that it has seen, so that a creation needs
// no request for them. A table that is deleted and restored under its name may lack them, so the store has a random mark, which every
// new entry changes: a state of the store with the same mark has the same entries. The handle reads the mark with the fence, and
// forgets its entries if it differs.
type registry struct {
	table *table
	store driver.StoreID

	entering chan struct{} // a semaphore: one call enters a type, so that calls of this handle do not conflict

	mu           sync.Mutex
	reads        uint64 // of the mark with the fence
	mark         []byte
	enteredTypes map[storage.UnversionedType]bool // entries of every state with the mark
}

func newRegistry(t *table, id driver.StoreID) *registry {
	return &registry{table: t, store: id, entering: make(chan struct{}, 1)}
}

// errNotEntered means that a creation was not sent because its type could not be entered in time.
var errNotEntered = request.NewError(request.NotApplied, "the registry of types was not answered")

// errOtherStore means that the table was deleted and created again.
var errOtherStore = request.NewError(request.Rejected, "the table has another store now: close the handle, and open the table again")

// enter adds types before resources of them are created. The caller has a permission to write, which a read of the mark preceded.
func (r *registry) enter(ctx context.Context, types []storage.UnversionedType) error {
	for _, typ := range types {
		if r.has(typ) {
			continue
		}
		if err := r.enterType(ctx, typ); err != nil {
			if request.Classify(err) != request.Rejected {
				err = fmt.Errorf("%w: %w", errNotEntered, err)
			}
			return err
		}
	}
	return nil
}

func (r *registry) has(typ storage.UnversionedType) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.enteredTypes[typ]
}

func (r *registry) enterType(ctx context.Context, typ storage.UnversionedType) error {
	select {
	case r.entering <- struct{}{}:
	case <-ctx.Done():
		return request.Inconsistent(ctx, nil)
	}
	defer func() { <-r.entering }()
	entry := r.table.typeEntry(typ.Group, typ.Kind)
	for !r.has(typ) {
		reads := r.markReads()
		items, err := r.table.getAtomically(ctx, entry, r.table.store())
		if err != nil {
			return err
		}
		if err := r.checkStore(items[1]); err != nil {
			return err
		}
		mark := items[1].bytes(attrVersion)
		if items[0] != nil && mark != nil {
			r.add(typ, mark, mark, reads)
			continue
		}
		next := newRevision()
		_, err = r.table.transact(ctx, r.table.on(types.TransactWriteItem{Put: &types.Put{Item: entry}}, condition{}), r.setMark(mark, next))
		switch {
		case err == nil:
			r.add(typ, mark, next, reads)
		case !errors.Is(err, errCondition): // otherwise another process has entered a type meanwhile
			return err
		}
	}
	return nil
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

// add remembers the entry of a type, after which the store had the mark next. mark was the one before. reads was the number of reads of the
// mark before the requests for the entry. If the mark has been read since, the answers may be those of a table that was deleted before
// that read, so they are ignored.
func (r *registry) add(typ storage.UnversionedType, mark, next []byte, reads uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reads != reads {
		return
	}
	r.keepAt(mark)
	r.mark = next
	r.enteredTypes[typ] = true
}

func (r *registry) markReads() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reads
}

// keepAt forgets all entries unless they were seen at that mark. The caller holds the lock.
func (r *registry) keepAt(mark []byte) {
	if r.enteredTypes == nil || !bytes.Equal(r.mark, mark) {
		r.mark, r.enteredTypes = mark, make(map[storage.UnversionedType]bool)
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

// types returns the types that match a filter, in order. It reads strongly, because a type is entered before its first resource is
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
