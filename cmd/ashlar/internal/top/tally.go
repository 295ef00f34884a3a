package top

import (
	"hash/maphash"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

const (
	// rateWindow is the number of seconds over which rates are averaged.
	rateWindow = 10
	// maxChanges is the number of changes that are kept.
	maxChanges = 200
)

// Tally counts the events of a watch. It needs a little more than 16 bytes for each resource, whatever the resource's size. Its methods are
// safe for concurrent use.
type Tally struct {
	seed maphash.Seed

	mu       sync.Mutex
	start    time.Time
	types    map[storage.UnversionedType]*count
	sizes    map[uint64]uint32 // of the resources, by a hash of the key
	changes  []Change          // newest last
	complete bool
	lag      time.Duration
	lagKnown bool
	note     string
}

// count holds the counts of a type.
type count struct {
	resources int
	bytes     int64
	seconds   [rateWindow]second
}

// second holds the counts of one second.
type second struct {
	at              int64 // Unix time
	writes, deletes int
}

// NewTally returns an empty tally.
func NewTally(now time.Time) *Tally {
	return &Tally{seed: maphash.MakeSeed(), start: now, types: map[storage.UnversionedType]*count{}, sizes: map[uint64]uint32{}}
}

// Relist resets the counts for the snapshot that follows and sets the reason. It keeps the newest changes.
func (t *Tally) Relist(note string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.types, t.sizes = map[storage.UnversionedType]*count{}, map[uint64]uint32{}
	t.complete, t.lagKnown, t.note = false, false, note
}

// Note shows a text until the next list is complete.
func (t *Tally) Note(note string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.note = note
}

// Count counts an event.
func (t *Tally) Count(ev *resourcepb.WatchEvent, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch e := ev.GetEvent().(type) {
	case *resourcepb.WatchEvent_EndOfSnapshot_:
		t.complete, t.note = true, ""
	case *resourcepb.WatchEvent_Upsert_:
		t.upsert(e.Upsert.GetResource(), now)
	case *resourcepb.WatchEvent_Delete_:
		t.delete(e.Delete.GetResource(), now)
	}
}

// SetLag records the time that the watch took to prove that it was up to date.
func (t *Tally) SetLag(lag time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lag, t.lagKnown = lag, true
}

func (t *Tally) typeCount(id *resourcepb.ID) *count {
	typ := storage.UnversionedTypeFrom(id.GetType())
	c := t.types[typ]
	if c == nil {
		c = &count{}
		t.types[typ] = c
	}
	return c
}

func (t *Tally) hash(id *resourcepb.ID) uint64 { return maphash.Comparable(t.seed, key.Of(id)) }

func (t *Tally) upsert(res *resourcepb.Resource, now time.Time) {
	c, at, size := t.typeCount(res.GetId()), t.hash(res.GetId()), uint32(proto.Size(res))
	before, known := t.sizes[at]
	t.sizes[at] = size
	c.bytes += int64(size) - int64(before)
	action := "update"
	if !known {
		c.resources++
		action = "create"
	}
	if t.complete {
		c.second(now).writes++
		t.addChange(Change{now, action, res.GetId()})
	}
}

func (t *Tally) delete(res *resourcepb.Resource, now time.Time) {
	c, at := t.typeCount(res.GetId()), t.hash(res.GetId())
	if size, known := t.sizes[at]; known {
		delete(t.sizes, at)
		c.resources--
		c.bytes -= int64(size)
	}
	c.second(now).deletes++
	t.addChange(Change{now, "delete", res.GetId()})
}

func (t *Tally) addChange(c Change) {
	if len(t.changes) == 2*maxChanges {
		t.changes = append(t.changes[:0], t.changes[maxChanges:]...)
	}
	t.changes = append(t.changes, c)
}

// second returns the counts of a second.
func (c *count) second(now time.Time) *second {
	s := &c.seconds[now.Unix()%rateWindow]
	if s.at != now.Unix() {
		*s = second{at: now.Unix()}
	}
	return s
}

// Picture returns the current counts.
func (t *Tally) Picture(now time.Time) *Picture {
	t.mu.Lock()
	defer t.mu.Unlock()
	p := &Picture{At: now, Since: now.Sub(t.start), Complete: t.complete, Lag: t.lag, LagKnown: t.lagKnown, Note: t.note}
	// Rates cover whole seconds, so the current second does not count.
	seconds := min(max(now.Sub(t.start).Seconds(), 1), rateWindow-1)
	for typ, c := range t.types {
		row := Row{Type: typ, Resources: c.resources, Bytes: c.bytes}
		for _, s := range c.seconds {
			if age := now.Unix() - s.at; age >= 0 && age < rateWindow {
				row.Writes += float64(s.writes) / seconds
				row.Deletes += float64(s.deletes) / seconds
			}
		}
		p.Rows = append(p.Rows, row)
		p.Total.Resources += row.Resources
		p.Total.Bytes += row.Bytes
		p.Total.Writes += row.Writes
		p.Total.Deletes += row.Deletes
	}
	p.sort(ByType, false)
	newest := t.changes[max(0, len(t.changes)-maxChanges):]
	p.Changes = slices.Clone(newest)
	slices.Reverse(p.Changes)
	return p
}
