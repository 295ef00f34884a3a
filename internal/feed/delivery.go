package feed

import (
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// delivery is one result of a watch.
type delivery[P any] struct {
	kind     kind
	resource *resourcepb.Resource // from the snapshot
	event    *driver.Event[P]     // a change
	previous *driver.Version      // the previous state, if requested
	more     bool
	at       P      // the position after it
	cursor   string // of a bookmark
	request  int64  // the number of the newest request that a bookmark answers
}

type kind int8

const (
	nothing kind = iota
	inSnapshot
	snapshotEnd
	change
	bookmark
)

// watchEvent returns the delivery as an event whose resources belong to the caller.
func (d *delivery[P]) watchEvent() *resourcepb.WatchEvent {
	switch d.kind {
	case inSnapshot:
		return upsertEvent(d.resource)
	case snapshotEnd:
		return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_EndOfSnapshot_{EndOfSnapshot: &resourcepb.WatchEvent_EndOfSnapshot{}}}
	case bookmark:
		return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Bookmark_{Bookmark: &resourcepb.WatchEvent_Bookmark{Cursor: d.cursor, Request: d.request}}}
	}
	res := codec.Clone(d.event.Resource)
	out := &resourcepb.WatchEvent{}
	if d.event.Delete {
		out.Event = &resourcepb.WatchEvent_Delete_{Delete: &resourcepb.WatchEvent_Delete{Resource: res}}
	} else {
		out = upsertEvent(res)
	}
	out.More = d.more
	if d.previous != nil {
		out.Before = d.previous.Resource
	}
	return out
}

// upsertEvent returns the event of a resource, in one allocation.
func upsertEvent(res *resourcepb.Resource) *resourcepb.WatchEvent {
	parts := &struct {
		event  resourcepb.WatchEvent
		upsert resourcepb.WatchEvent_Upsert_
		inner  resourcepb.WatchEvent_Upsert
	}{}
	parts.inner.Resource = res
	parts.upsert.Upsert = &parts.inner
	parts.event.Event = &parts.upsert
	return &parts.event
}
