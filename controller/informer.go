package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/clientstore"
	"github.com/ashlar-dev/storage/internal/replica"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// informer is the copy of the resources of one type and tenancy. All controllers of a manager share it.
type informer struct {
	typ     *resourcepb.Type
	tenancy *resourcepb.Tenancy // nil for all of the type's scope
	indexes []*Index            // without the id index
	log     *slog.Logger
	store   *clientstore.Store
	copy    *replica.Replica[entry]

	logLength int // changes that the copy keeps for its followers; 0 for the default
}

// entry is the value of a row: the encoded resource and its index keys. It is shared and must not be modified.
type entry struct {
	res  *resourcepb.Resource
	keys []string
}

type row = replica.Row[entry]

// indexKey returns the key of an index in the tree of all indexes of a type.
func indexKey(index, k string) string { return index + "\x00" + k }

// failureKey returns the key, in that tree, of the resources for which the function of an index panics. The name of an index has no NUL.
func failureKey(index string) string { return "\x00" + index }

// open opens the copy. It returns when the copy is complete.
func (i *informer) open(ctx context.Context, client resourcegrpc.ResourceServiceClient) (err error) {
	i.store = clientstore.New(client, i.typ, i.tenancy, i.log.With("type", typeName(i.typ)))
	i.copy, err = replica.Open(ctx, i.store, replica.Options[entry]{
		Types:  []storage.UnversionedType{storage.UnversionedTypeFrom(i.typ)},
		Decode: i.entryOf,
		Index:  &replica.Index[entry]{Keys: func(r *row) []string { return r.Value.keys }},
		Uid:    func(r *row) string { return r.Value.res.GetId().GetUid() },

		KeepsResources: true,
		LogLength:      i.logLength,
	})
	return err
}

// openRetrying opens the copy, and retries until ctx ends.
func (i *informer) openRetrying(ctx context.Context, client resourcegrpc.ResourceServiceClient, log *slog.Logger) error {
	i.log = log
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		err := i.open(ctx, client)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		log.WarnContext(ctx, "cannot list the resources of a type; retrying", "type", typeName(i.typ), "error", err, "pause", pause)
		sleep(ctx, pause)
	}
}

func (i *informer) entryOf(res *resourcepb.Resource) entry {
	e := entry{res: res}
	for _, index := range i.indexes {
		e.keys = append(e.keys, i.keysOf(index, res)...)
	}
	slices.Sort(e.keys)
	e.keys = slices.Compact(e.keys)
	return e
}

// keysOf returns the keys of a resource in an index, as they are in the tree. If the function of the index panics, the only key is [failureKey].
func (i *informer) keysOf(index *Index, res *resourcepb.Resource) (keys []string) {
	if err := protect(func() error { keys = index.keys(res); return nil }); err != nil {
		i.log.Error("the function of an index panics; the index cannot be read", "index", index.name, "resource", key.Of(res.GetId()).String(), "error", err)
		return []string{failureKey(index.name)}
	}
	all := make([]string, len(keys))
	for n, k := range keys {
		all[n] = indexKey(index.name, k)
	}
	return all
}

// barrier waits until the copy includes everything that was acknowledged, to any program, before the call.
func (i *informer) barrier(ctx context.Context) error {
	if i.copy.Bookmarks() {
		return i.copy.Barrier(ctx)
	}
	return i.copy.Relist(ctx)
}

// all returns the rows of the copy.
func (i *informer) all() iter.Seq[*row] {
	return i.copy.View().All(storage.UnversionedTypeFrom(i.typ))
}

// completeKey returns the key of the cached resource that the service finds under an incomplete key, whose empty units it completes if the type has them.
// Without such a resource it returns the key as it is.
func (i *informer) completeKey(k key.Key) key.Key {
	partition := k
	partition.Partition = cmp.Or(k.Partition, defaultUnit)
	both := partition
	both.Namespace = cmp.Or(k.Namespace, defaultUnit)
	for _, full := range []key.Key{k, partition, both} {
		if i.copy.Get(full) != nil {
			return full
		}
	}
	return k
}

// defaultUnit is the partition and the namespace that the service completes.
const defaultUnit = "default"

// covers reports whether a tenancy, whose units may be "*", includes a key. Nil includes every key. The service completes empty units.
func covers(tenancy *resourcepb.Tenancy, k key.Key) bool {
	fits := func(want, unit string) bool {
		return want == storage.Wildcard || want == unit || cmp.Or(want, defaultUnit) == cmp.Or(unit, defaultUnit)
	}
	return tenancy == nil || fits(tenancy.GetPartition(), k.Partition) && fits(tenancy.GetNamespace(), k.Namespace)
}

// informers are the copies of a manager, by type. They are complete before a controller starts and do not change afterwards.
type informers map[storage.UnversionedType]*informer

// add adds the copy of a type and tenancy, nil for all tenancies. Callers with different tenancies share a copy of all. It fails if two indexes
// have one name.
func (all informers) add(typ *resourcepb.Type, tenancy *resourcepb.Tenancy, indexes []*Index) error {
	name := storage.UnversionedTypeFrom(typ)
	i := all[name]
	switch {
	case i == nil:
		i = &informer{typ: proto.CloneOf(typ), tenancy: proto.CloneOf(tenancy), indexes: []*Index{ownerIndex}}
		all[name] = i
	case i.typ.GetGroupVersion() != typ.GetGroupVersion():
		return fmt.Errorf("type %s: another controller of the manager uses the group version %s", typeName(typ), i.typ.GetGroupVersion())
	case !proto.Equal(i.tenancy, tenancy):
		i.tenancy = nil
	}
	for _, index := range indexes {
		if err := checkName("index", index.name); err != nil {
			return err
		}
		at := slices.IndexFunc(i.indexes, func(other *Index) bool { return other.name == index.name })
		switch {
		case index.name == IDIndex, at >= 0 && i.indexes[at] != index:
			return fmt.Errorf("type %s: two indexes have the name %q", typeName(typ), index.name)
		case at < 0:
			i.indexes = append(i.indexes, index)
		}
	}
	return nil
}

// find returns the copy that has a key, or would have it; nil for none.
func (all informers) find(k key.Key) *informer {
	i := all[storage.UnversionedType{Group: k.Group, Kind: k.Kind}]
	if i == nil || !covers(i.tenancy, k) {
		return nil
	}
	return i
}

// close closes the copies.
func (all informers) close() {
	for _, i := range all {
		if i.copy != nil {
			i.copy.Close()
		}
	}
}

// typeName returns the name of a type for people.
func typeName(t *resourcepb.Type) string {
	return t.GetGroup() + "." + t.GetGroupVersion() + "." + t.GetKind()
}

// sleep waits for a duration or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
