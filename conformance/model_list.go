package conformance

import (
	"slices"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A modelListing is a listing in pages, with all of its tokens. Each token continues the listing, any number of times.
type modelListing struct {
	handle   *modelHandle
	filter   filter
	revision int64                  // 0: the present
	start    int                    // the number of changes at the first page
	want     []*resourcepb.Resource // what all pages show together, if they are one cut
	oneCut   bool
	cursor   string
	tokens   []modelToken
}

type modelToken struct {
	text          string
	previousPages []*resourcepb.Resource // on the pages before it
}

// accept compares a page with the listing. It is the page after a token.
func (l *modelListing) accept(after modelToken, limit int, page storage.Page) {
	shown := append(slices.Clone(after.previousPages), page.Resources...)
	if limit > 0 && len(page.Resources) > limit {
		failCheck("pages", "a page of %v has %d resources, the limit is %d", l.filter, len(page.Resources), limit)
	}
	if page.Cursor != l.cursor {
		failCheck("pages", "a page of %v has cursor %q, the first one had %q", l.filter, page.Cursor, l.cursor)
	}
	if page.Continue != "" {
		l.tokens = append(l.tokens, modelToken{page.Continue, shown})
	}
	if l.oneCut {
		want := l.want[:min(len(l.want), len(shown))]
		if page.Continue == "" {
			want = l.want
		}
		if err := compareLists(shown, want); err != nil {
			failCheck("lists are one cut", "the pages of %v: %v", l.filter, err)
		}
		return
	}
	l.checkUnchanged(shown, page.Continue == "")
}

// checkUnchanged checks the promise of listings that are no cut: each key is returned once, in a state that it had during the
// listing.
func (l *modelListing) checkUnchanged(shown []*resourcepb.Resource, complete bool) {
	byKey := make(map[string]*resourcepb.Resource)
	for i, res := range shown {
		if byKey[keyOf(res.Id)] = res; i > 0 && keyOf(shown[i-1].Id) >= keyOf(res.Id) || !l.filter.selects(res.Id) {
			failCheck("pages", "the pages of %v show %s after %s", l.filter, shortText(res), shortText(shown[max(i-1, 0)]))
		}
	}
	for _, c := range l.handle.store.changes {
		res, is := byKey[c.key]
		if !is && !(complete && l.filter.selects(subject(c.event).Id)) {
			continue
		}
		if _, ok := l.handle.store.observe(c.key, l.start, func(stored *resourcepb.Resource) bool { return sameResource(stored, res) }); !ok {
			failCheck("pages", "the pages of %v show %q in no state that it had meanwhile: %s", l.filter, c.key, shortText(res))
		}
	}
}

// position returns the meaning of the listing's cursor: before all changes after its first page. A listing that is no cut may have
// an earlier one.
func (l *modelListing) position() modelCursor {
	statuses := make([]changeStatus, l.start)
	for i := range statuses {
		if statuses[i] = statusBefore; !l.oneCut {
			statuses[i] = statusOpen
		}
	}
	return modelCursor{l.cursor, statuses}
}
