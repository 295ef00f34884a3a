package cache

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage/driver/key"
)

// marks is a set of unconfirmed keys over a copy with some versions.
type marks struct {
	unconfirmedKeys
	*testing.T
	copies map[string]string
}

func newMarks(t *testing.T) *marks { return &marks{T: t, copies: map[string]string{}} }

func named(name string) key.Key { return key.Key{Name: name} }

func (m *marks) version(k key.Key) string { return m.copies[k.Name] }

// expect checks which of the keys a, b and c are marked, through each of the methods of readers.
func (m *marks) expect(step, want string) {
	m.Helper()
	checkAny := func() {
		m.Helper()
		if hasAny := m.allNumber != 0 || len(m.keys) > 0; m.hasAny.Load() != hasAny {
			m.Errorf("%s: readers see any marks: %v, expected %v", step, !hasAny, hasAny)
		}
	}
	checkAny()
	found, names := "", []string{"a", "b", "c"}
	for _, name := range names {
		if m.has(named(name), m.version) {
			found += name
		}
		checkAny()
	}
	if found != want {
		m.Errorf("%s: %q are marked, expected %q", step, found, want)
	}
	for _, name := range names {
		isMarked := m.hasMatch(func(k key.Key) bool { return k.Name == name }, m.version)
		if m.allNumber == 0 && isMarked != strings.Contains(want, name) {
			m.Errorf("%s: a list of %s finds a mark: %v", step, name, isMarked)
		}
		checkAny()
	}
}

// A mark with a version ends when the copy has this version. Of two versions the order is unknown, so only a barrier ends their mark.
func TestMarkEndsAtVersion(t *testing.T) {
	t.Parallel()
	m := newMarks(t)
	m.expect("in the beginning", "")
	m.add(named("a"), "2")
	m.add(named("b"), "")
	m.copies["a"] = "1"
	m.expect("before the version", "ab")
	m.copies["a"] = "2"
	m.expect("at the version", "b")
	m.add(named("a"), "3")
	m.removeIfAt(named("a"), "2")
	m.removeIfAt(named("b"), "")
	m.removeIfAt(named("c"), "3")
	m.expect("after other versions", "ab")
	m.removeIfAt(named("a"), "3")
	m.expect("after an event of the version", "b")
	m.removeUpTo(m.latest())
	m.add(named("a"), "4")
	m.removeIfAt(named("a"), "4")
	m.expect("after the only mark", "")
	m.add(named("a"), "5")
	m.add(named("a"), "6")
	m.copies["a"] = "6"
	m.expect("at one of two versions", "a")
	m.removeUpTo(m.latest())
	m.expect("after a barrier", "")
	m.add(named("a"), "6")
	if m.hasMatch(func(key.Key) bool { return true }, m.version) || m.hasAny.Load() {
		t.Error("a list does not remove the mark at the version of the copy")
	}
}

// A barrier ends the marks from before it, and no later ones.
func TestBarrierEndsEarlierMarks(t *testing.T) {
	t.Parallel()
	m := newMarks(t)
	m.add(named("a"), "")
	first := m.latest()
	m.add(named("b"), "")
	m.removeUpTo(first)
	m.expect("after the first mark", "b")
	m.removeUpTo(m.latest())
	m.expect("after both", "")
	m.addAll()
	all := m.latest()
	m.removeUpTo(all - 1)
	m.expect("before the mark of every key", "abc")
	if !m.hasMatch(func(key.Key) bool { return false }, m.version) {
		t.Error("a list finds no mark, although every key is marked")
	}
	m.add(named("a"), "")
	m.removeUpTo(all)
	m.expect("after the mark of every key", "a")
}

// An answer of the backend ends the marks of its key from before the call, if the copy has the version of the answer.
func TestAnswerEndsEarlierMarks(t *testing.T) {
	t.Parallel()
	m := newMarks(t)
	m.copies["a"] = "5"
	m.add(named("a"), "")
	m.noteAnswer(named("a"), "5", m.latest()-1, m.version)
	m.expect("after an older call", "a")
	m.noteAnswer(named("a"), "5", m.latest(), m.version)
	m.expect("after the answer", "")
	m.noteAnswer(named("a"), "6", m.latest(), m.version)
	m.expect("after the answer of another version", "a")
	m.copies["a"] = "6"
	m.expect("at that version", "")
	m.noteAnswer(named("b"), "", m.latest(), m.version)
	m.expect("after the answer that the key is absent", "b")
	m.removeUpTo(m.latest())
	m.add(named("b"), "")
	m.noteAnswer(named("a"), "6", m.latest(), m.version)
	m.expect("after the answer of another key", "b")
	m.addAll()
	m.noteAnswer(named("a"), "6", m.latest()-1, m.version)
	m.expect("after a call from before the mark of every key", "abc")
	m.noteAnswer(named("a"), "6", m.latest(), m.version)
	m.expect("after a later call", "bc")
}

// A list of the backend marks every key but those that it confirms, and confirms none that was marked during the list.
func TestListConfirmsKeys(t *testing.T) {
	t.Parallel()
	m := newMarks(t)
	confirmed := []key.Key{named("a"), named("b")}
	before := m.latest()
	m.add(named("a"), "")
	m.addAllExcept(confirmed, before)
	m.expect("after a list that began before a mark", "ac")
	m.addAllExcept(confirmed, m.latest())
	m.expect("after a later list", "c")
	before = m.latest()
	m.addAllExcept(confirmed, before)
	m.expect("after the next list", "c")
	m.addAllExcept(append(confirmed, named("c")), before)
	m.expect("after a list that began before the mark of every key", "c")
}

// The number of single marks, and of exceptions, is bounded. Beyond it keys are marked too often, never too rarely.
func TestMarksAreBounded(t *testing.T) {
	t.Parallel()
	m := newMarks(t)
	numbered := func(i int) key.Key { return named(fmt.Sprint(i)) }
	var keys []key.Key
	for i := range maxUnconfirmed + 1 {
		keys = append(keys, numbered(i))
	}
	for _, k := range keys[:maxUnconfirmed] {
		m.add(k, "")
	}
	m.add(keys[0], "")
	m.expect("with as many marks as possible", "")
	m.add(keys[maxUnconfirmed], "")
	m.expect("with one more", "abc")
	m.addAllExcept(keys, m.latest())
	marked := 0
	for _, k := range keys {
		if m.has(k, m.version) {
			marked++
		}
	}
	if marked != 1 {
		t.Errorf("%d of the listed keys are marked, expected one", marked)
	}
	m.addAll()
	for i, k := range keys {
		m.copies[k.Name] = "1"
		m.noteAnswer(k, "1", m.latest(), m.version)
		if m.has(k, m.version) {
			t.Errorf("key %d is marked after its answer", i)
		}
		if isFull := i >= maxUnconfirmed; m.has(keys[0], m.version) != isFull {
			t.Fatalf("after %d answers the first key is marked: %v", i+1, !isFull)
		}
	}
}
