package replica

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unique"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Options configures a replica.
type Options[V any] struct {
	// Types are the copied types; none copies all types.
	Types []storage.UnversionedType
	// Decode returns the value of a row from a resource. It owns the resource.
	Decode func(*resourcepb.Resource) V
	// KeepsResources reports that the values keep the texts of their resources in memory. Rows then share them instead of copying them.
	KeepsResources bool
	// Index orders the rows; nil for none.
	Index *Index[V]
	// Uid returns the uid of the resource of a row. With it, the replica ignores deletions with another uid, which succeed without an effect. Nil if
	// callers never delete with another uid.
	Uid func(*Row[V]) string
	// Size returns the size of a row's value in bytes; nil if Replica.Size need not count bytes.
	Size func(*Row[V]) int
	// LogLength and LogBytes bound the changes kept for followers. The defaults are 65,536 changes and 32 MiB.
	LogLength, LogBytes int
}

// Replica is a copy of some types of a store. It is safe for concurrent use.
type Replica[V any] struct {
	feed[V]
	stop context.CancelFunc
}

// Open returns a replica when the copy is complete. It does not close the backend. It fails with [storage.ErrInvalid] if a type is a wildcard or not
// valid for resources.
func Open[V any](ctx context.Context, backend storage.Backend, opts Options[V]) (*Replica[V], error) {
	s := &state[V]{
		rows:    rows[V]{trees: newTrees[V](), byHash: newByHash[V](), index: opts.Index, size: opts.Size},
		log:     newLog[V](opts.LogLength, opts.LogBytes),
		waiters: waiters{wakeAll: make(chan struct{}, 1)},
	}
	s.views = views[V]{mu: &s.mu, rows: &s.rows, log: &s.log}
	r := &Replica[V]{feed: feed[V]{types: slices.Clone(opts.Types), endCh: make(chan struct{}), localWrites: &localWrites[V]{
		state: s, backend: backend, uid: opts.Uid,
		makeRow:    func(res *resourcepb.Resource, like *Row[V]) *Row[V] { return opts.rowFrom(res, like) },
		sentWrites: map[key.Key][]*Writing[V]{}, acknowledgedWrites: map[key.Key]*localWrite[V]{}, deletedWrites: map[key.Key]*localWrite[V]{},
	}}}
	for _, t := range r.types {
		if err := checkType(t); err != nil {
			return nil, err
		}
	}
	w, err := r.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.prime(ctx, w); err != nil {
		w.Close()
		return nil, err
	}
	_, r.barriers.haveBookmarks = w.(storage.Bookmarker)
	r.isLive = true
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	r.verify = func() { r.helpers.Go(func() { r.runVerify(ctx) }) }
	go r.run(ctx, w)
	r.helpers.Go(r.broadcast)
	return r, nil
}

// checkType checks that resources can have a type.
func checkType(t storage.UnversionedType) error {
	if t.Group == storage.Wildcard || t.Kind == storage.Wildcard {
		return fmt.Errorf("%w: the type %s/%s is a wildcard, expected one type, or no types for all", storage.ErrInvalid, t.Group, t.Kind)
	}
	_, err := check.Filter(t, &resourcepb.Tenancy{}, "")
	return err
}

// rowFrom returns the row of a resource. Unless the options permit it, the row's key and version do not share memory with the resource, whose texts
// may be parts of a larger one. They share it with like, another row or nil, if their texts are equal.
func (o *Options[V]) rowFrom(res *resourcepb.Resource, like *Row[V]) *Row[V] {
	k, version := key.Of(res.GetId()), res.GetVersion()
	if !o.KeepsResources {
		var shared key.Key
		if like != nil {
			shared = like.Key
		}
		k = key.Key{
			Group: intern(k.Group, shared.Group), Kind: intern(k.Kind, shared.Kind),
			Partition: intern(k.Partition, shared.Partition), Namespace: intern(k.Namespace, shared.Namespace), Name: strings.Clone(k.Name),
		}
		version = strings.Clone(version)
	}
	return &Row[V]{Key: k, Version: version, Weight: Weight(res), Value: o.Decode(res)}
}

// intern returns a text that equal texts of other rows share. like is such a text, and saves the look-up.
func intern(s, like string) string {
	if s == like {
		return like
	}
	return unique.Make(s).Value()
}

// Close ends the replica and its followers.
func (r *Replica[V]) Close() {
	r.stop()
	<-r.endCh
	r.helpers.Wait()
}
