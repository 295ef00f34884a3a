package replica

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unique"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Row is a resource with what was decoded from it. It is shared, and must not be changed.
type Row[V any] struct {
	Key     key.Key
	Version string
	Value   V
	// Weight is about how many bytes the row keeps in memory.
	Weight int32

	logUses int32 // how often the log has it
}

// rowCost is about what a row takes beside its payload.
const rowCost = 300

// Weight returns about how many bytes the row of a resource keeps in memory.
func Weight(res *resourcepb.Resource) int32 {
	bytes := rowCost + len(res.GetData().GetValue())
	for name, value := range res.GetMetadata() {
		bytes += len(name) + len(value)
	}
	for _, status := range res.GetStatus() {
		bytes += proto.Size(status)
	}
	return int32(bytes)
}

// Index is an order of rows by the bytes of keys that a function takes from them.
type Index[V any] struct {
	// Keys returns the keys of a row, always the same ones.
	Keys func(*Row[V]) []string
}

// Options are the options of a replica.
type Options[V any] struct {
	// Types are what is copied; none: all there are.
	Types []storage.UnversionedType
	// Decode makes the value of a row from a resource, which belongs to it.
	Decode func(*resourcepb.Resource) V
	// Index orders the rows; nil for none.
	Index *Index[V]
	// Uid returns the uid of what is stored in a row: a deletion of another uid succeeds and deletes nothing. Nil if nobody asks for one.
	Uid func(*Row[V]) string
	// Size returns the bytes that a row's value takes; nil if nobody asks for the replica's size.
	Size func(*Row[V]) int
	// LogLength and LogBytes bound the changes that are kept for followers; 0 is 65,536 changes, and 32 MiB.
	LogLength, LogBytes int
}

// Replica is a copy of some types of a store. Its methods may be called from any number of goroutines.
type Replica[V any] struct {
	backend   storage.Backend
	opts      Options[V]
	types     map[storage.UnversionedType]bool
	ctx       context.Context // over when the replica is closed
	stop      context.CancelFunc
	feedEndCh chan struct{}  // closed when the feed has ended
	helpers   sync.WaitGroup // the herald, and who ask the database about own writes

	mu             sync.Mutex
	trees          *trees[V]
	byHash         byHash[V]
	view           *View[V]   // of this state; nil if it has changed since
	borrowedViews  []*View[V] // those that are read here and have no trees of their own
	localWrites    map[key.Key]*localWrite[V]
	finishedWrites map[key.Key]*localWrite[V] // own writes whose end was read, which the watch may have yet to bring
	writeCount     int64                      // counts what was ever in own
	bytes          int64                      // of all rows
	live           bool                       // a watch feeds the copy
	listCount      int64                      // counts how often all was listed anew
	cursor         string                     // the watch's, at or behind all that it has brought
	inflight       map[key.Key][]*Writing[V]
	log            changeLog[V]
	wake           chan struct{} // closed at the next change; nil if nobody waits
	waiterCount    int           // who waits for that
	wakeAll        chan struct{} // has the herald wake them
	barriers       barriers
	endErr         error       // why there are no more changes
	hasEnded       atomic.Bool // ended is set
}

// Open returns a replica when all is in memory. The backend stays the caller's. A type that no resource can have, as a wildcard, is
// [storage.ErrInvalid].
func Open[V any](ctx context.Context, backend storage.Backend, opts Options[V]) (*Replica[V], error) {
	r := &Replica[V]{
		backend: backend, opts: opts, types: map[storage.UnversionedType]bool{}, feedEndCh: make(chan struct{}), wakeAll: make(chan struct{}, 1),
		localWrites: map[key.Key]*localWrite[V]{}, finishedWrites: map[key.Key]*localWrite[V]{}, inflight: map[key.Key][]*Writing[V]{},
		log: newLog[V](opts.LogLength, opts.LogBytes), trees: newTrees[V](), byHash: newByHash[V](),
	}
	r.opts.Types = slices.Clone(opts.Types)
	for _, t := range opts.Types {
		if err := checkType(t); err != nil {
			return nil, err
		}
		r.types[t] = true
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
	r.live = true
	r.ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	go r.feed(r.ctx, w)
	r.helpers.Go(r.broadcaster)
	return r, nil
}

// checkType checks that a type is one that resources can have.
func checkType(t storage.UnversionedType) error {
	if t.Group == storage.Wildcard || t.Kind == storage.Wildcard {
		return fmt.Errorf("%w: the type %s/%s is a wildcard, expected one type, or no types for all", storage.ErrInvalid, t.Group, t.Kind)
	}
	_, err := check.Filter(t, &resourcepb.Tenancy{}, "")
	return err
}

// Close ends the replica and its followers.
func (r *Replica[V]) Close() {
	r.stop()
	<-r.feedEndCh
	r.helpers.Wait()
}

// Bookmarks reports whether there are barriers.
func (r *Replica[V]) Bookmarks() bool { return r.barriers.haveBookmarks }

// Live reports whether a watch feeds the copy. While it does not, as after the loss of history, the copy stands still and there are no
// answers to barriers.
func (r *Replica[V]) Live() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live && r.endErr == nil
}

// Get returns what View().Get does, and spares the copying of trees.
func (r *Replica[V]) Get(k key.Key) *Row[V] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at(k)
}

// at returns the row of a key, nil for none. The caller holds the lock.
func (r *Replica[V]) at(k key.Key) *Row[V] {
	if row, known := r.byHash.get(&k); known {
		return row
	}
	return r.trees.get(k)
}

// Size returns the number of rows, and about what they take in memory.
func (r *Replica[V]) Size() (rows int, bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.trees.rows.Len(), r.bytes
}

// HasEnded reports whether the copy is not brought up to date any more, as Err does, and spares the lock.
func (r *Replica[V]) HasEnded() bool { return r.hasEnded.Load() }

// Err returns why the copy is not brought up to date any more; nil while it is.
func (r *Replica[V]) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.endErr
}

// open opens the one watch of all types.
func (r *Replica[V]) open(ctx context.Context) (storage.Watch, error) {
	all := storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
	if len(r.opts.Types) > 0 {
		all = r.opts.Types[0]
	}
	for _, t := range r.opts.Types {
		switch {
		case t == all:
		case t.Group == all.Group:
			all.Kind = storage.Wildcard
		default:
			all.Group, all.Kind = storage.Wildcard, storage.Wildcard
		}
	}
	return r.backend.WatchList(ctx, all, &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}, "")
}

// has reports whether a resource is of the copied types.
func (r *Replica[V]) has(res *resourcepb.Resource) bool {
	return len(r.types) == 0 || r.types[storage.UnversionedTypeFrom(res.GetId().GetType())]
}

// row makes a row, which holds on to nothing of the resource by itself: its texts may be part of a larger one.
func (r *Replica[V]) row(res *resourcepb.Resource) *Row[V] {
	k := key.Of(res.GetId())
	k = key.Key{Group: shared(k.Group), Kind: shared(k.Kind), Partition: shared(k.Partition), Namespace: shared(k.Namespace), Name: strings.Clone(k.Name)}
	return &Row[V]{Key: k, Version: strings.Clone(res.GetVersion()), Weight: Weight(res), Value: r.opts.Decode(res)}
}

// shared returns a text that many rows have in common.
func shared(s string) string { return unique.Make(s).Value() }

// set puts a row in the place of what is there under its key; a nil row removes that. The caller holds the lock.
func (r *Replica[V]) set(k key.Key, row *Row[V]) {
	if len(r.borrowedViews) > 0 {
		r.recordOldRow(k, r.at(k))
	}
	r.view = nil
	old := r.trees.set(k, row, r.opts.Index)
	r.byHash.set(&k, row)
	if r.opts.Size == nil {
		return
	}
	if old != nil {
		r.bytes -= int64(rowCost + r.opts.Size(old))
	}
	if row != nil {
		r.bytes += int64(rowCost + r.opts.Size(row))
	}
}

// directWakeLimit is how many waiting goroutines a change wakes by itself.
const directWakeLimit = 4

// wakeWaiters wakes those who wait for a change. The caller holds the lock: if many wait, it leaves them to the herald, so that it is not the
// writer who wakes them all, and so that what comes meanwhile wakes nobody twice.
func (r *Replica[V]) wakeWaiters() {
	if r.waiterCount <= directWakeLimit {
		r.release()
		return
	}
	select {
	case r.wakeAll <- struct{}{}:
	default:
	}
}

// broadcaster wakes those who wait, if they are many, until the feed ends.
func (r *Replica[V]) broadcaster() {
	for {
		select {
		case <-r.feedEndCh:
			return
		case <-r.wakeAll:
		}
		r.mu.Lock()
		r.release()
		r.mu.Unlock()
	}
}

// release wakes those who wait. The caller holds the lock.
func (r *Replica[V]) release() {
	if r.wake != nil {
		close(r.wake)
		r.wake, r.waiterCount = nil, 0
	}
}

// wait returns a channel that is closed at the next change. The caller holds the lock.
func (r *Replica[V]) wait() <-chan struct{} {
	if r.wake == nil {
		r.wake = make(chan struct{})
	}
	r.waiterCount++
	return r.wake
}

// AwaitChange waits until the copy has been in another state of a key than a View, where the key has a version, "" for nothing. That it is in the
// same state again, as when what was created was deleted, counts as well. So does a list of everything anew, which does not show what was
// created and deleted before it.
func (r *Replica[V]) AwaitChange(ctx context.Context, v *View[V], k key.Key, version string) error {
	r.mu.Lock()
	at := v.logEnd
	for {
		held := ""
		if row := r.at(k); row != nil {
			held = row.Version
		}
		var touched bool
		if touched, at = r.log.touches(k, at); held != version || touched || r.listCount != v.listCount {
			r.mu.Unlock()
			return nil
		}
		if r.endErr != nil {
			defer r.mu.Unlock()
			return r.endErr
		}
		wake := r.wait()
		r.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		}
		r.mu.Lock()
	}
}
