package postgres

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ashlar-dev/storage"
)

// model is a small database. Writers read the last number, note it, draw numbers, and commit or fail; a reader may read between any
// two of their steps.
type model struct {
	last      int64
	writers   []*modelWriter
	committed []int64
}

type modelWriter struct {
	read, noted bool
	bound       int64
	drawn       []int64
}

func (h *model) step(t *rapid.T) {
	action := rapid.IntRange(0, 5).Draw(t, "action")
	if action == 0 || len(h.writers) == 0 {
		h.writers = append(h.writers, &modelWriter{})
		return
	}
	w := rapid.SampledFrom(h.writers).Draw(t, "writer")
	switch {
	case !w.read:
		w.read, w.bound = true, h.last
	case !w.noted:
		w.noted = true
	case action < 4:
		h.last++
		w.drawn = append(w.drawn, h.last)
	default:
		if action == 4 {
			h.committed = append(h.committed, w.drawn...)
		}
		h.writers = slices.DeleteFunc(h.writers, func(o *modelWriter) bool { return o == w })
	}
}

// final is the result of a reader's two steps, with other steps in between.
func (h *model) final(between func()) int64 {
	final := h.last
	between()
	for _, w := range h.writers {
		if w.noted {
			final = min(final, w.bound)
		}
	}
	return final
}

func (h *model) visible(after, upTo int64) []change {
	var found []change
	for _, revision := range slices.Sorted(slices.Values(h.committed)) {
		if revision > after && revision <= upTo {
			found = append(found, change{at: position{revision: revision}})
		}
	}
	return found
}

// TestFollowing moves a watch through polls and through changes that are handed over, like the feed, from a snapshot taken at any
// moment. It cuts the watch off at any event, and lets another watch continue from the cursor. Together they must return each
// change exactly once, in the order of numbers.
func TestFollowing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h := &model{last: 100}
		steps := func(label string) {
			for range rapid.IntRange(0, 12).Draw(t, label) {
				h.step(t)
			}
		}
		steps("before")
		feed := position{revision: 100} // the feed's position
		var own []change
		var at position // the watch's position
		var seen []int64
		began := false
		polls := uint64(0)
		publish := func(found []change, final int64) {
			end := feed
			for i := range found {
				end = end.with(&found[i].at)
				if !began || at.contains(&found[i].at) {
					continue
				}
				seen = append(seen, found[i].at.revision)
				at = at.with(&found[i].at)
				if rapid.Bool().Draw(t, "resume") {
					var err error
					if at, err = decoded(at); err != nil {
						t.Fatal(err)
					}
				}
			}
			if final > 0 {
				polls++
				end.view = view{pollNumber: polls, last: h.last, final: final}
			}
			if began {
				at = at.with(&end)
			}
			feed = end
		}
		var listed []int64
		for range rapid.IntRange(1, 6).Draw(t, "looks") {
			steps("during")
			if !began && rapid.Bool().Draw(t, "begin") {
				began = true
				final := h.final(func() { steps("between the number and the notes") })
				steps("between the notes and the snapshot")
				for _, c := range h.visible(0, h.last) {
					listed = append(listed, c.at.revision)
					if c.at.revision <= final {
						at.revision = c.at.revision
					} else {
						at.aboveFrontier = append(at.aboveFrontier, numberRange{c.at.revision, c.at.revision})
					}
				}
				if at.revision == 0 {
					at.revision = 100
				}
			}
			steps("before changes are handed over")
			for _, c := range h.visible(feed.revision, h.last) {
				if rapid.Bool().Draw(t, "hand over") {
					own = append(own, c)
				}
			}
			var found []change
			found, own = following(own, &feed, 0)
			publish(found, 0)
			if rapid.Bool().Draw(t, "look") {
				final := h.final(func() { steps("between the number and the notes") })
				steps("between the notes and the changes")
				publish(h.visible(feed.revision, final), final)
			}
		}
		if !began {
			return
		}
		if !slices.IsSorted(seen) {
			t.Fatalf("the watch returned the changes %v, expected increasing numbers", seen)
		}
		for _, revision := range h.committed {
			count := 0
			for _, s := range append(slices.Clone(listed), seen...) {
				if s == revision {
					count++
				}
			}
			if change := (position{revision: revision}); at.contains(&change) != (count == 1) || count > 1 {
				t.Fatalf("change %d was returned %d times, and the position contains it: %v", revision, count, at.contains(&change))
			}
			if revision <= feed.view.final && count != 1 {
				t.Fatalf("change %d is final (%d) and was returned %d times", revision, feed.view.final, count)
			}
		}
	})
}

func TestCursorText(t *testing.T) {
	t.Parallel()
	p := position{revision: 44, index: 3, tokenPrefix: [tokenPrefixSize]byte{1, 2, 3, 4, 5, 6, 7, 8}, aboveFrontier: []numberRange{{50, 52}, {60, 60}}, aboveFrontierDigest: [tokenPrefixSize]byte{8, 7}}
	got, err := decoded(p)
	if err != nil {
		t.Fatal(err)
	}
	if compare(&got, &p) != 0 || got.tokenPrefix != p.tokenPrefix || got.aboveFrontierDigest != p.aboveFrontierDigest || !slices.Equal(got.aboveFrontier, p.aboveFrontier) {
		t.Errorf("decoded: %v, expected %v", got, p)
	}
	const piece = "12345678"
	for _, payload := range []string{
		"", "x", "\x01", "\x01\x00", "\x01\x00" + piece[:7], "\x01\x00" + piece + "\x01", "\x01\x00" + piece + piece, "\x01\x00" + piece + piece + "\x01\x01\x00\x01",
		"\x01\x00" + piece + piece + "\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00" + piece, "\x01\xff\xff\xff\xff\x7f" + piece,
	} {
		if _, err := (&source{}).Decode([]byte(payload)); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("Decode of %q returned %v, expected ErrInvalid", payload, err)
		}
	}
}

// TestPositionInsideSpan moves a listing's position into a range of changes that the listing already contained: past a whole
// change, and to a point inside a transaction. The listing's contents stay included, also in the cursor.
func TestPositionInsideSpan(t *testing.T) {
	t.Parallel()
	for _, end := range []position{{revision: 105}, {revision: 105, index: 1}, {revision: 110, index: 1}, {revision: 120, index: 1}} {
		listed := position{revision: 100, aboveFrontier: []numberRange{{101, 110}, {120, 120}}}
		at := listed.with(&end)
		resumed, err := decoded(at)
		if err != nil {
			t.Errorf("the cursor at %d/%d: %v", end.revision, end.index, err)
			continue
		}
		for revision := int64(100); revision <= 121; revision++ {
			for place := range int32(3) {
				change := position{revision: revision, index: place}
				want := listed.contains(&change) || compare(&change, &end) <= 0
				if at.contains(&change) != want || resumed.contains(&change) != want {
					t.Errorf("at %d/%d: %d/%d is included: %t, by the cursor %t, expected %t",
						end.revision, end.index, revision, place, at.contains(&change), resumed.contains(&change), want)
				}
			}
		}
	}
}

// decoded returns a position after encoding and decoding.
func decoded(p position) (position, error) {
	var s source
	return s.Decode(s.Encode(p))
}
