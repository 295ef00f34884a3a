package faults

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
