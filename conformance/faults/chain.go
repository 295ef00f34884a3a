package faults

// chain is what was stored under a key, in order. Position 0 is nothing, position p what step p-1 left.
type chain struct {
	key       string
	steps     []event
	positions map[string]int    // by version
	removed   map[state]int     // the position after the deletion of what
	gone      map[string]int    // the same by uid
	removers  map[state][]*call // that were not refused
}

// at is what is stored at a position.
func (c *chain) at(position int) state {
	if position == 0 || c.steps[position-1].deleted {
		return state{}
	}
	return c.steps[position-1].now
}

// position is where a state that was read is; false if nowhere, or in several places because it is nothing.
func (c *chain) position(s state) (int, bool) {
	p, ok := c.positions[s.version]
	return p, ok && s.version != "" && c.at(p) == s
}

// after is the position that an event leads to; false if it is none of the chain's.
func (c *chain) after(ev event) (int, bool) {
	if ev.deleted {
		return c.removed[ev.now], c.removed[ev.now] > 0
	}
	at, ok := c.positions[ev.now.version]
	return at, ok
}

// absences are the positions at which nothing is stored.
func (c *chain) absences() (positions []int) {
	for p := range len(c.steps) + 1 {
		if c.at(p) == (state{}) {
			positions = append(positions, p)
		}
	}
	return positions
}

func newChain(key string, events []event) *chain {
	c := &chain{key: key, positions: map[string]int{}, removed: map[state]int{}, gone: map[string]int{}, removers: map[state][]*call{}}
	for _, ev := range events {
		if ev.key != key {
			continue
		}
		c.steps = append(c.steps, ev)
		if ev.deleted {
			c.removed[ev.now], c.gone[ev.now.uid] = len(c.steps), len(c.steps)
		} else {
			c.positions[ev.now.version] = len(c.steps)
		}
	}
	return c
}
