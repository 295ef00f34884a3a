package faults

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
)

// event is a change returned by a watch.
type event struct {
	key      string
	now      state  // after a deletion: the deleted state
	name     string // of the write
	replaces string
	owner    string
	isDelete bool
	isLast   bool
	fromList bool // not a change, but the state in a list after a compaction; the zero state if the key is absent
	more     bool
	handle   int
	process  int           // number of the handle's process that returned it
	at       time.Duration // when Next had returned it
}

// newEvent returns the event of a change, and the namespace of its resource.
func newEvent(ev *resourcepb.WatchEvent, handle, process int, at time.Duration) (e event, res *resourcepb.Resource) {
	res = ev.GetUpsert().GetResource()
	if res == nil {
		res = ev.GetDelete().GetResource()
		e.isDelete = true
	}
	e.key, e.now = res.GetId().GetName(), state{res.GetId().GetUid(), res.GetVersion()}
	e.name, e.replaces, e.isLast = res.GetMetadata()[metaName], res.GetMetadata()[metaReplaces], res.GetMetadata()[metaLast] != ""
	e.owner = ownerOf(res.GetOwner())
	e.more, e.handle, e.process, e.at = ev.GetMore(), handle, process, at
	return e, res
}

func (e event) String() string {
	if e.fromList {
		return fmt.Sprintf("[%s] history was gone, and a list showed %s of %s", formatTime(e.at), e.now, shortKey(e.key))
	}
	if e.isDelete {
		return fmt.Sprintf("[%s] deletion of %s at version %s", formatTime(e.at), shortKey(e.key), e.now.version)
	}
	text := fmt.Sprintf("[%s] %s wrote %s in place of %s → %s", formatTime(e.at), e.name, shortKey(e.key), cmp.Or(e.replaces, "nothing"), e.now.version)
	if e.owner != "" {
		text += ", owned by " + e.owner
	}
	return text
}
