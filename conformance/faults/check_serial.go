package faults

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// checkSerial decides whether the calls can have been made one after the other, each at a moment between its beginning and its end.
// This is strict serializability: linearizability for each key, and for transactions, lists and pages as well.
//
// The order of the changes of each key is known, so no search is needed. A read of a version comes after the call that wrote it and
// before the call that replaced it. Along these edges each call gets its earliest possible moment. The history is invalid if such a
// moment lies after the end of its call, or if the edges form a circle. Otherwise the moments prove that it is valid.
//
// An answer by absence (nothing found, refused) may belong to several positions in the history of a key. If only one of them is
// possible, the answer counts as a read of that position. If none is, the history is invalid.
//
// If such an order exists, checkSerial then decides whether one of them has all changes in the order of history, as watches show
// it. Strict serializability alone accepts a list that shows one of two overlapping changes and lacks the other one, although watches
// show them in the opposite order.
func checkSerial(e *evidence) []Violation {
	g := newGraph(e)
	found := g.check("strictly serializable")
	if len(found) == 0 && e.run.h.NoOrderAcrossKeys == "" {
		g.addHistory()
		found = g.check("one order for everything strong")
	}
	return found
}

// check schedules all nodes, and resolves as many ambiguous answers as it can.
func (g *graph) check(name string) (found []Violation) {
	for pass := 0; ; pass++ {
		if found := g.schedule(name); len(found) > 0 {
			return found
		}
		for k, n := range g.of {
			g.e.latest[k] = n.late
		}
		added, found := g.absences(name)
		if len(found) > 0 || !added || pass == 3 {
			return found
		}
	}
}

// node is something that happened at one moment.
type node struct {
	source      fmt.Stringer
	begin, end  time.Duration
	early, late time.Duration // the bounds of its moment
	before      *node         // why it is not earlier
	next, prev  []*node
	pendingPrev int // of prev, while the graph is walked
}

func (n *node) isCall() bool {
	_, is := n.source.(*call)
	return is
}

func (n *node) String() string { return n.source.String() }

type graph struct {
	e            *evidence
	nodes        []*node
	of           map[*call]*node
	versionNodes map[string][]*node // by key: the node of each position; nil at 0
	ambiguous    []ambiguous
}

// ambiguous is an answer that may belong to several positions of a key.
type ambiguous struct {
	node      *node
	key       string
	positions []int
	because   string
	resolved  bool
}

func (g *graph) add(what fmt.Stringer, begin, end time.Duration) *node {
	n := &node{source: what, begin: begin, end: end}
	g.nodes = append(g.nodes, n)
	return n
}

func (g *graph) node(k *call) *node {
	n := g.of[k]
	if n == nil {
		n = g.add(k, k.begin, k.end)
		g.of[k] = n
	}
	return n
}

func edge(from, to *node) {
	if from != nil && to != nil && from != to {
		from.next, to.prev = append(from.next, to), append(to.prev, from)
	}
}

// newGraph returns a graph with a node for each call, and edges for the answers.
func newGraph(e *evidence) *graph {
	g := &graph{e: e, of: map[*call]*node{}, versionNodes: map[string][]*node{}}
	for _, key := range e.round.keys {
		g.addKeyHistory(e.keyHistories[key])
	}
	for _, k := range e.calls {
		switch {
		case k.outcome == outcomeRefused:
			g.refusal(k)
		case k.outcome == outcomeUnknown && !e.appliedCalls[k]:
		case k.outcome != outcomeDone && !k.changes(), k.reads() && !k.strong:
		default:
			g.reads(k)
		}
	}
	return g
}

// addKeyHistory adds the changes of a key, in their order.
func (g *graph) addKeyHistory(c *keyHistory) {
	made := []*node{nil}
	for _, step := range c.steps {
		var n *node
		if k := g.e.writes[step.name]; !step.isDelete && k != nil {
			n = g.node(k)
		} else if by := c.removers[step.now]; step.isDelete && len(by) == 1 {
			n = g.node(by[0])
		} else { // one of several callers deleted it, and the others found it deleted
			begin, end := forever, time.Duration(0)
			for _, k := range by {
				begin, end = min(begin, k.begin), max(end, k.end)
			}
			if len(by) == 0 {
				begin, end = 0, forever
			}
			n = g.add(step, begin, end)
		}
		edge(made[len(made)-1], n)
		made = append(made, n)
	}
	g.versionNodes[c.key] = made
}

// addHistory adds the order in which the witness saw the changes of all keys. It skips a deletion that several callers have tried:
// the deletion may belong to a transaction, whose events have no order among themselves.
func (g *graph) addHistory() {
	var last *node
	seen := map[string]int{} // number of steps by key
	for _, ev := range g.e.witness.events {
		seen[ev.key]++
		if made := g.versionNodes[ev.key]; seen[ev.key] < len(made) && made[seen[ev.key]].isCall() {
			edge(last, made[seen[ev.key]])
			last = made[seen[ev.key]]
		}
	}
}

// reads adds edges for the states that a call observed.
func (g *graph) reads(k *call) {
	for _, p := range k.parts {
		n := g.of[k]
		switch {
		case n != nil:
		case k.isSnapshot || !k.reads() || len(k.parts) == 1:
			n = g.node(k)
		default: // a list that is no cut reads each key at a moment of its own
			n = g.add(k, k.begin, k.end)
		}
		c := g.e.keyHistories[p.key]
		switch seen := observedState(p); {
		case p.verb == write:
		case p.verb == remove:
			if at := c.deletionPositions[p.expectedState.uid]; at > 0 {
				edge(g.versionNodes[p.key][at], n)
			}
		case seen == state{}:
			g.ambiguous = append(g.ambiguous, ambiguous{node: n, key: p.key, positions: c.absences(), because: "nothing was there"})
		default:
			if at, ok := c.position(seen); ok {
				g.addReadEdges(n, p.key, at)
			}
		}
	}
}

// observedState returns the state that a part of a call observed.
func observedState(p part) state {
	if p.verb == demand {
		if p.expectedState.version == "" {
			return state{}
		}
		return p.expectedState
	}
	return p.observedState
}

// addReadEdges adds the edges of a node that happened while a key was at a position.
func (g *graph) addReadEdges(n *node, key string, at int) {
	made := g.versionNodes[key]
	edge(made[at], n)
	if at+1 < len(made) {
		edge(n, made[at+1])
	}
}

// refusal records the positions of a key that can have refused a call.
func (g *graph) refusal(k *call) {
	for _, p := range k.parts {
		if p.refusalCause == nil {
			continue
		}
		c := g.e.keyHistories[p.key]
		var positions []int
		for at := range len(c.steps) + 1 {
			if errors.Is(p.refusal(c.at(at)), p.refusalCause) {
				positions = append(positions, at)
			}
		}
		n := g.add(k, k.begin, k.end)
		g.ambiguous = append(g.ambiguous, ambiguous{node: n, key: p.key, positions: positions, because: fmt.Sprintf("the answer was %q", p.refusalCause)})
	}
}

// schedule computes the bounds of each node and returns contradictions.
func (g *graph) schedule(name string) (found []Violation) {
	order, circle := g.order()
	if circle != nil {
		return []Violation{{name, joinLines("each of these must have come before the next, and the last before the first:", circle)}}
	}
	for _, n := range order {
		n.early, n.before = n.begin, nil
		for _, p := range n.prev {
			if p.early > n.early {
				n.early, n.before = p.early, p
			}
		}
	}
	var best []*node
	for _, n := range order {
		if n.early > n.end {
			if path := n.path(); best == nil || len(path) < len(best) {
				best = path
			}
		}
	}
	if best != nil {
		return []Violation{{name, joinLines("each of these must have come before the next, but the last had returned before the first began:", best)}}
	}
	for _, n := range slices.Backward(order) {
		n.late = n.end
		for _, s := range n.next {
			n.late = min(n.late, s.late)
		}
	}
	return nil
}

// path returns the path to a node from the node whose beginning bounds it.
func (n *node) path() (path []*node) {
	for ; n != nil; n = n.before {
		path = append(path, n)
	}
	slices.Reverse(path)
	return path
}

// order sorts the nodes so that edges lead forwards. If that is impossible, it returns a circle.
func (g *graph) order() (order, circle []*node) {
	for _, n := range g.nodes {
		n.pendingPrev = len(n.prev)
		if n.pendingPrev == 0 {
			order = append(order, n)
		}
	}
	for i := 0; i < len(order); i++ {
		for _, s := range order[i].next {
			if s.pendingPrev--; s.pendingPrev == 0 {
				order = append(order, s)
			}
		}
	}
	if len(order) == len(g.nodes) {
		return order, nil
	}
	for _, n := range g.nodes {
		if n.pendingPrev == 0 {
			continue
		}
		if c := n.circle(); c != nil && (circle == nil || len(c) < len(circle)) {
			circle = c
		}
		if len(circle) == 2 {
			break
		}
	}
	return order, circle
}

// circle returns the shortest path from a node to itself, or nil.
func (n *node) circle() []*node {
	from := map[*node]*node{}
	for queue := []*node{n}; len(queue) > 0; queue = queue[1:] {
		for _, s := range queue[0].next {
			if s.pendingPrev == 0 || from[s] != nil {
				continue
			}
			from[s] = queue[0]
			if s != n {
				queue = append(queue, s)
				continue
			}
			var path []*node
			for at := queue[0]; ; at = from[at] {
				path = append(path, at)
				if at == n {
					slices.Reverse(path)
					return path
				}
			}
		}
		if len(from) > 5000 {
			return nil
		}
	}
	return nil
}

// absences finds the possible positions of ambiguous answers. It reports whether it added an edge.
func (g *graph) absences(name string) (added bool, found []Violation) {
	for i := range g.ambiguous {
		v := &g.ambiguous[i]
		if v.resolved {
			continue
		}
		made := g.versionNodes[v.key]
		var possible []int
		for _, at := range v.positions {
			from, until := time.Duration(0), forever
			if made[at] != nil {
				from = made[at].early
			}
			if at+1 < len(made) {
				until = made[at+1].late
			}
			if max(from, v.node.early) <= min(until, v.node.late) {
				possible = append(possible, at)
			}
		}
		switch len(possible) {
		case 0:
			found = append(found, Violation{name, fmt.Sprintf("%s, which was so at no moment of this call: %s\n%s",
				v.because, v.node, g.during(v.key, v.node.begin, v.node.end))})
		case 1:
			g.addReadEdges(v.node, v.key, possible[0])
			v.resolved, added = true, true
		}
	}
	slices.SortStableFunc(found, func(a, b Violation) int { return cmp.Compare(len(a.Text), len(b.Text)) })
	return added, found
}

// during describes the changes of a key around two moments.
func (g *graph) during(key string, begin, end time.Duration) string {
	var around []*node
	made := g.versionNodes[key]
	for i, n := range made {
		if n == nil || n.early > end {
			continue
		}
		if i+1 == len(made) || made[i+1].late >= begin {
			around = append(around, n)
		}
	}
	return joinLines("states of the key at that time:", around[max(0, len(around)-6):])
}
