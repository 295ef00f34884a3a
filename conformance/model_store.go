package conformance

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A violation ends a history. Check is a name of [Guarantee].Model.
type violation struct{ check, text string }

func (v *violation) Error() string { return fmt.Sprintf("[%s] %s", v.check, v.text) }

// failCheck ends the history with a violation, which the player recovers.
func failCheck(check, format string, args ...any) {
	panic(&violation{check, fmt.Sprintf(format, args...)})
}

// A modelStore is the expected content of a store, and all changes that led to it. A store without history leaves the revisions of
// the records 0.
type modelStore struct {
	now     map[string]*history.Record // by key
	changes []modelChange              // in the order of commits
	commits int
}

// A modelChange is one change of one key.
type modelChange struct {
	key         string
	event       *resourcepb.WatchEvent
	now, before *history.Record // nil if nothing is stored
	commit      int
	after, upTo int64 // its revision is greater than after and at most upTo
}

func newModelStore() *modelStore { return &modelStore{now: make(map[string]*history.Record)} }

func resourceOf(r *history.Record) *resourcepb.Resource {
	if r == nil {
		return nil
	}
	return r.Resource
}

// resources returns the stored resources.
func (m *modelStore) resources() (all []*resourcepb.Resource) {
	for _, r := range m.now {
		all = append(all, r.Resource)
	}
	return all
}

func operationID(op storage.Op) *resourcepb.ID {
	switch {
	case op.Write != nil:
		return op.Write.GetId()
	case op.Delete != nil:
		return op.Delete
	}
	return op.Check
}

// decide implements the decision tables of the contract.
func (m *modelStore) decide(op storage.Op) error {
	id, version := operationID(op), op.Version+op.Write.GetVersion()
	now := resourceOf(m.now[keyOf(id)])
	switch {
	case op.Delete != nil && !op.Present && (now == nil || now.Id.Uid != id.Uid):
		return nil
	case now == nil && version == "" && !op.Present:
		return nil
	case now == nil, op.Check != nil && version == "" && id.Uid == "":
		return storage.ErrCASFailure
	case now.Id.Uid != id.Uid:
		return storage.ErrWrongUid
	case now.Version != version:
		return storage.ErrCASFailure
	}
	return nil
}

// commit applies operations that succeeded together.
func (m *modelStore) commit(ops []storage.Op, results []*resourcepb.Resource) {
	m.commits++
	for i, op := range ops {
		key := keyOf(operationID(op))
		c := modelChange{key: key, before: m.now[key], commit: m.commits}
		switch {
		case op.Write != nil:
			m.checkResult(op.Write, results[i])
			c.now, c.event = &history.Record{Resource: clone(results[i]), Writes: 1}, upsertEvent(results[i])
			if c.before != nil {
				c.now.Created, c.now.Writes = c.before.Created, c.before.Writes+1
			}
			m.now[key] = c.now
		case op.Delete != nil && c.before != nil && c.before.Resource.Id.Uid == op.Delete.Uid:
			c.event = deleteEvent(c.before.Resource)
			delete(m.now, key)
		default:
			continue
		}
		m.changes = append(m.changes, c)
	}
}

// checkResult compares the result of a write with its argument. Its version is new for the key.
func (m *modelStore) checkResult(written, result *resourcepb.Resource) {
	want := clone(written)
	want.Version = result.GetVersion()
	if want.Version == "" || !proto.Equal(result, want) {
		failCheck("content", "a write returned\n%s\nwant\n%s", shortText(result), shortText(want))
	}
	for _, c := range m.changes {
		if earlier := resourceOf(c.now); earlier.GetVersion() == want.Version && c.key == keyOf(want.Id) {
			failCheck("versions", "version %q of %q came a second time", want.Version, c.key)
		}
	}
}

// at returns the content after a number of changes.
func (m *modelStore) at(changes int) map[string]*history.Record {
	content := make(map[string]*history.Record)
	for _, c := range m.changes[:changes] {
		if content[c.key] = c.now; c.now == nil {
			delete(content, c.key)
		}
	}
	return content
}

// observe looks for a state of a key that matches, at or after a number of changes. It returns the smallest number of changes with
// that state.
func (m *modelStore) observe(key string, floor int, matches func(stored *resourcepb.Resource) bool) (changes int, found bool) {
	var stored *resourcepb.Resource
	changes = floor
	for i, c := range m.changes {
		if c.key != key {
			continue
		}
		if i >= floor {
			if matches(stored) {
				return changes, true
			}
			changes = i + 1
		}
		stored = resourceOf(c.now)
	}
	return changes, matches(stored)
}

// readMatches reports whether the answer of a Read of id is right if stored is under its key.
func readMatches(stored *resourcepb.Resource, id *resourcepb.ID, got *resourcepb.Resource, err error) bool {
	var mismatch storage.GroupVersionMismatchError
	switch {
	case stored == nil, id.Uid != "" && id.Uid != stored.Id.Uid:
		return got == nil && errors.Is(err, storage.ErrNotFound)
	case id.Type.GroupVersion != stored.Id.Type.GroupVersion:
		return got == nil && errors.As(err, &mismatch) && proto.Equal(mismatch.Stored, stored) && proto.Equal(mismatch.RequestedType, id.Type)
	}
	return err == nil && proto.Equal(got, stored)
}

// owns reports whether a resource names an owner, by key and uid.
func owns(owner *resourcepb.ID, res *resourcepb.Resource) bool {
	return res.GetOwner() != nil && keyOf(res.Owner) == keyOf(owner) && res.Owner.Uid == owner.Uid
}

func sameResource(a, b *resourcepb.Resource) bool {
	return a == nil && b == nil || a != nil && b != nil && proto.Equal(a, b)
}

func operationText(op storage.Op) string {
	kind := "write"
	switch {
	case op.Delete != nil && op.Present:
		kind = "delete, if present,"
	case op.Delete != nil:
		kind = "delete"
	case op.Check != nil:
		kind = "check"
	}
	text := fmt.Sprintf("%s %s at version %q", kind, idText(operationID(op)), op.Version+op.Write.GetVersion())
	if owner := op.Write.GetOwner(); owner != nil {
		text += ", owner " + idText(owner)
	}
	return text
}

func idText(id *resourcepb.ID) string {
	return fmt.Sprintf("%q (uid %s, group version %q)", strings.ReplaceAll(keyOf(id), "\x00", "|"), id.Uid, id.Type.GetGroupVersion())
}

func eventText(ev *resourcepb.WatchEvent) string {
	switch {
	case ev.GetEndOfSnapshot() != nil:
		return "the end of the snapshot"
	case ev.GetBookmark() != nil:
		return "a bookmark"
	case ev.GetMore():
		return fmt.Sprintf("%s of %s, and more", label(ev), idText(subject(ev).GetId()))
	}
	return fmt.Sprintf("%s of %s", label(ev), idText(subject(ev).GetId()))
}
