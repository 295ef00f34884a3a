// Package pairing finds the elements of a stored list that the elements of a changed list continue.
package pairing

import (
	"strings"
	"unicode"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// An element of a new list has the index of the stored element that it continues, or one of these.
const (
	noPair    = -1
	ambiguous = -2 // it equals several stored elements with different unknown fields
)

// pairing pairs the elements of a new list with stored elements.
type pairing struct {
	storedTexts, newTexts []string          // contents
	knownTexts            []string          // contents of the stored elements without their unknown fields
	knownValues           []*structpb.Value // the elements behind known
	newValues             []*structpb.Value // the elements behind now
	pairs                 []int             // of the new elements
	hasPair               []bool            // of the stored elements
	textCounts            map[string]int    // numbers of stored objects with a text in a field
	prefix, tail          int               // lengths of the equal beginnings and ends
}

// Lists returns, for each element of a new list, the index of the stored element that it continues, or a negative number. known has the stored elements
// as the writer of the new list read them, without the fields that it lacks; it is as long as stored. In this order:
//
//   - The elements at the beginning and at the end that are unchanged continue the elements there.
//   - An unchanged element between these continues the stored element that equals it.
//   - A changed object continues the only stored one with its identity: see identity.
//   - A changed object without an identity continues the stored one at its place, if no element was inserted or removed beside it, and if it has
//     a text in common with that one and with no other stored object.
func Lists(stored, known, now []*structpb.Value) []int {
	p := &pairing{
		storedTexts: contents(stored), knownTexts: contents(known), newTexts: contents(now), knownValues: known, newValues: now,
		pairs: make([]int, len(now)), hasPair: make([]bool, len(known)), textCounts: map[string]int{},
	}
	for i := range p.pairs {
		p.pairs[i] = noPair
	}
	for _, value := range known {
		for name, field := range value.GetStructValue().GetFields() {
			p.textCounts[name+"\x00"+field.GetStringValue()]++
		}
	}
	p.pairEnds()
	p.pairEqual()
	p.pairIdentities()
	p.pairGaps()
	return p.pairs
}

func (p *pairing) pair(now, at int) { p.pairs[now], p.hasPair[at] = at, true }

// pairEnds pairs the equal beginnings and ends. If both claim an element, it is unknown which of its equals was removed.
func (p *pairing) pairEnds() {
	removed, shortest := len(p.knownTexts)-len(p.newTexts), min(len(p.knownTexts), len(p.newTexts))
	for p.prefix < shortest && p.knownTexts[p.prefix] == p.newTexts[p.prefix] {
		p.prefix++
	}
	for p.tail < shortest && p.knownTexts[len(p.knownTexts)-1-p.tail] == p.newTexts[len(p.newTexts)-1-p.tail] {
		p.tail++
	}
	first := len(p.newTexts) - p.tail
	for i := range p.newTexts[:p.prefix] {
		if p.pair(i, i); removed > 0 && i >= first && p.storedTexts[i] != p.storedTexts[i+removed] {
			p.pairs[i] = ambiguous
		}
	}
	p.tail = min(p.tail, shortest-p.prefix)
	for i := len(p.newTexts) - p.tail; i < len(p.newTexts); i++ {
		p.pair(i, i+removed)
	}
}

// pairEqual pairs the unchanged elements between the ends.
func (p *pairing) pairEqual() {
	before, after := map[string][]int{}, map[string][]int{}
	for at := p.prefix; at < len(p.knownTexts)-p.tail; at++ {
		before[p.knownTexts[at]] = append(before[p.knownTexts[at]], at)
	}
	for i := p.prefix; i < len(p.newTexts)-p.tail; i++ {
		after[p.newTexts[i]] = append(after[p.newTexts[i]], i)
	}
	for content, elements := range after {
		candidates := before[content]
		isAmbiguous := false
		for _, at := range candidates {
			isAmbiguous = isAmbiguous || len(elements) < len(candidates) && p.storedTexts[at] != p.storedTexts[candidates[0]]
		}
		for n, i := range elements {
			switch {
			case isAmbiguous:
				p.pairs[i] = ambiguous
			case n < len(candidates):
				p.pair(i, candidates[n])
			}
		}
	}
}

// pairIdentities pairs changed objects whose identity no other object of either list has.
func (p *pairing) pairIdentities() {
	before, after := byIdentity(p.knownValues), byIdentity(p.newValues)
	for id, elements := range after {
		if at := before[id]; len(at) == 1 && len(elements) == 1 && p.pairs[elements[0]] == noPair && !p.hasPair[at[0]] {
			p.pair(elements[0], at[0])
		}
	}
}

// pairGaps pairs changed objects between two paired elements with the stored objects between these.
func (p *pairing) pairGaps() {
	for start := 0; start < len(p.newTexts); start++ {
		end := start
		for end < len(p.newTexts) && p.pairs[end] == noPair {
			end++
		}
		first, next := 0, len(p.knownTexts)
		if start > 0 {
			first = p.pairs[start-1] + 1
		}
		if end < len(p.newTexts) {
			next = p.pairs[end]
		}
		if end > start && first >= 0 && next-first == end-start && !(start > 0 && p.pairs[start-1] < 0) {
			p.pairGap(start, end, first)
		}
		start = end
	}
}

// maxShift is the largest distance over which pairGap detects that elements were moved, so that long lists take linear time.
const maxShift = 50

// pairGap pairs the new elements from start to end with as many stored ones from first on.
func (p *pairing) pairGap(start, end, first int) {
	offset := first - start
	for i := start; i < end; i++ {
		isNearest := !p.hasPair[i+offset] && p.likeness(i, i+offset) > 0
		for at := max(first, i+offset-maxShift); isNearest && at < min(end+offset, i+offset+maxShift); at++ {
			isNearest = p.likeness(i, at) <= p.likeness(i, i+offset)
		}
		if isNearest {
			p.pair(i, i+offset)
		}
	}
}

// likeness returns the number of texts that a new and a stored object have in the same fields, without those of other stored objects. It is 0 if
// their identities differ.
func (p *pairing) likeness(now, at int) (count int) {
	before, after := p.knownValues[at], p.newValues[now]
	if identity(before) != identity(after) {
		return 0
	}
	for name, value := range after.GetStructValue().GetFields() {
		text := value.GetStringValue()
		if was := before.GetStructValue().GetFields()[name]; text != "" && was.GetStringValue() == text && p.textCounts[name+"\x00"+text] == 1 {
			count++
		}
	}
	return count
}

// identity returns a text for the first of the fields id, uid, key and name that an object has as text or as a number; "" for none.
func identity(value *structpb.Value) string {
	for _, name := range []string{"id", "uid", "key", "name"} {
		switch field := value.GetStructValue().GetFields()[name]; field.GetKind().(type) {
		case *structpb.Value_StringValue, *structpb.Value_NumberValue:
			return name + content(field)
		}
	}
	return ""
}

// byIdentity returns the indexes of the objects with each identity.
func byIdentity(values []*structpb.Value) map[string][]int {
	all := map[string][]int{}
	for i, value := range values {
		if id := identity(value); id != "" {
			all[id] = append(all[id], i)
		}
	}
	return all
}

// contents returns the content of each value.
func contents(values []*structpb.Value) []string {
	all := make([]string, len(values))
	for i, value := range values {
		all[i] = content(value)
	}
	return all
}

// content returns an encoding of a value that is equal for equal values.
func content(value *structpb.Value) string {
	text, _ := proto.MarshalOptions{Deterministic: true}.Marshal(value) // the value was decoded, so it can be encoded
	return string(text)
}

// Fold returns a text that is equal for the names that package json decodes into one field.
func Fold(name string) string {
	return strings.Map(func(r rune) rune {
		lowest := r
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			lowest = min(lowest, next)
		}
		return lowest
	}, name)
}
