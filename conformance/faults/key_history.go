package faults

import (
	"cmp"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage/resourcepb"
)

// keyHistory contains the states of a key, in order. At position 0 the key is absent; position p is the state after step p-1.
type keyHistory struct {
	key               string
	steps             []event
	positions         map[string]int    // by version
	deletionsOf       map[state]int     // the position after the deletion of each state
	deletionPositions map[string]int    // the same by uid
	removers          map[state][]*call // that were not refused
}

// at returns the state at a position.
func (c *keyHistory) at(position int) state {
	if position == 0 || c.steps[position-1].isDelete {
		return state{}
	}
	return c.steps[position-1].now
}

// position returns the position of an observed state. It returns false if there is none, or if the state is absence, which has
// several positions.
func (c *keyHistory) position(s state) (int, bool) {
	p, ok := c.positions[s.version]
	return p, ok && s.version != "" && c.at(p) == s
}

// after returns the position after an event. It returns false if the event is not in the history.
func (c *keyHistory) after(ev event) (int, bool) {
	if ev.isDelete {
		return c.deletionsOf[ev.now], c.deletionsOf[ev.now] > 0
	}
	at, ok := c.positions[ev.now.version]
	return at, ok
}

// absences returns the positions where the key is absent.
func (c *keyHistory) absences() (positions []int) {
	for p := range len(c.steps) + 1 {
		if c.at(p) == (state{}) {
			positions = append(positions, p)
		}
	}
	return positions
}

func newKeyHistory(key string, events []event) *keyHistory {
	c := &keyHistory{key: key, positions: map[string]int{}, deletionsOf: map[state]int{}, deletionPositions: map[string]int{}, removers: map[state][]*call{}}
	for _, ev := range events {
		if ev.key != key {
			continue
		}
		c.steps = append(c.steps, ev)
		if ev.isDelete {
			c.deletionsOf[ev.now], c.deletionPositions[ev.now.uid] = len(c.steps), len(c.steps)
		} else {
			c.positions[ev.now.version] = len(c.steps)
		}
	}
	return c
}

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
