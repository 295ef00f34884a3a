package typed

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// errStopped is returned when the loop over the events has ended.
var errStopped = errors.New("the loop has ended")

// emitter returns the events of a follower to the program, and knows the last state of each resource.
type emitter[T any] struct {
	codec  *Codec[T]
	yield  func(Event[T], error) bool
	states map[key.Key]knownResource // of the resources that the program has
	// isComplete reports that states has all resources that the program has.
	isComplete bool
	selector   Selector
	heldEvent  *Event[T] // an event with More, until another event of its commit is returned or the commit ends
	cursor     string    // of the last returned event that has one
	returnedAt time.Time // of the last event
}

// knownResource is the last state of a resource that the program has.
type knownResource struct {
	id      *resourcepb.ID // set if the state is unknown
	uid     string
	version string
	data    []byte
}

// add adds resources from an earlier run of the program. The states of resources that are known already are newer.
func (e *emitter[T]) add(ids []*resourcepb.ID) {
	for _, id := range ids {
		if _, exists := e.states[key.Of(id)]; !exists {
			e.states[key.Of(id)] = knownResource{id: codec.CloneID(id), uid: id.GetUid()}
		}
	}
}

// change returns a change of a watch.
func (e *emitter[T]) change(ev *resourcepb.WatchEvent, cursor string) error {
	out := Event[T]{More: ev.GetMore(), Cursor: cursor}
	if res := ev.GetUpsert().GetResource(); res != nil {
		return e.put(res, out)
	}
	if res := ev.GetDelete().GetResource(); res != nil {
		return e.remove(res, out)
	}
	return nil
}

// remove returns the deletion of a resource that the program may have.
func (e *emitter[T]) remove(res *resourcepb.Resource, out Event[T]) error {
	k := key.Of(res.GetId())
	if _, exists := e.states[k]; !exists && e.isComplete {
		return nil // the selector did not select it
	}
	delete(e.states, k)
	return e.sendDeletion(res, out)
}

// put returns a stored resource if it differs from the known one. out has the other fields of the event.
func (e *emitter[T]) put(res *resourcepb.Resource, out Event[T]) error {
	k := key.Of(res.GetId())
	old, exists := e.states[k]
	if exists && old.id == nil && old.version == res.GetVersion() {
		return nil
	}
	if !e.selector.matches(res) && exists {
		return e.delete(k, out)
	} else if !e.selector.matches(res) {
		return e.remove(res, out)
	}
	if exists && old.uid != "" && old.uid != res.GetId().GetUid() {
		if err := e.delete(k, Event[T]{}); err != nil {
			return err
		}
		old = knownResource{}
	}
	data, err := codec.Encode(res)
	if err != nil {
		return err
	}
	e.states[k] = knownResource{uid: res.GetId().GetUid(), version: res.GetVersion(), data: data}
	out.Kind = Put
	if old.data != nil {
		if before, err := codec.Decode(old.data, old.version); err == nil {
			out.Old, _ = e.codec.Object(before) // the earlier state may have another payload type; then the event has only the new object
		}
	}
	out.New, err = e.codec.Object(res)
	return e.emit(out, err)
}

// deleteExcept returns a deletion for each known resource that was not listed, in the order of their keys.
func (e *emitter[T]) deleteExcept(listed map[key.Key]bool) error {
	var absent []key.Key
	for k := range e.states {
		if !listed[k] {
			absent = append(absent, k)
		}
	}
	slices.SortFunc(absent, func(a, b key.Key) int {
		if a.Before(&b) {
			return -1
		}
		return 1
	})
	for _, k := range absent {
		if err := e.delete(k, Event[T]{}); err != nil {
			return err
		}
	}
	return nil
}

// delete returns the deletion of a known resource.
func (e *emitter[T]) delete(k key.Key, out Event[T]) error {
	old := e.states[k]
	delete(e.states, k)
	if old.id != nil {
		out.Kind, out.Old = Deleted, &Object[T]{ID: old.id}
		return e.emit(out, nil)
	}
	res, err := codec.Decode(old.data, old.version)
	if err != nil {
		return err
	}
	return e.sendDeletion(res, out)
}

// sendDeletion returns a deleted resource.
func (e *emitter[T]) sendDeletion(res *resourcepb.Resource, out Event[T]) (err error) {
	out.Kind = Deleted
	if out.Old, err = e.codec.Object(res); errors.As(err, new(*PayloadError)) {
		out.Old, err = &Object[T]{ID: res.GetId()}, nil // the program may have an earlier state
	}
	return e.emit(out, err)
}

// emit returns an event, or the decoding error in its place.
func (e *emitter[T]) emit(out Event[T], err error) error {
	if err != nil {
		if e.heldEvent != nil {
			e.heldEvent.More = out.More
		}
		out = Event[T]{}
	}
	if err := e.releaseHeld(); err != nil {
		return err
	}
	if out.More {
		e.heldEvent = &out
		return nil
	}
	return e.send(out, err)
}

// endCommit returns the last event of a commit, if the rest of the commit has no event for the program.
func (e *emitter[T]) endCommit() error {
	if e.heldEvent != nil {
		e.heldEvent.More = false
	}
	return e.releaseHeld()
}

func (e *emitter[T]) releaseHeld() error {
	if e.heldEvent == nil {
		return nil
	}
	out := *e.heldEvent
	e.heldEvent = nil
	return e.send(out, nil)
}

// send passes an event or an error to the program.
func (e *emitter[T]) send(out Event[T], err error) error {
	if !e.yield(out, err) {
		return errStopped
	}
	e.cursor, e.returnedAt = cmp.Or(out.Cursor, e.cursor), time.Now()
	return nil
}
