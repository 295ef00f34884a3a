package conformance

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
)

func (h *handle) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	if err := h.enter(ctx, check.Consistency(c), errorOf(check.Filter(typ, tenancy, prefix))); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	all := h.matching(filter{typ, tenancy, prefix})
	if n := len(all) / 2; len(all) > 300 && h.has("a long list is read in two halves") {
		middle := keyOf(all[n].Id)
		h.pause()
		rest := slices.DeleteFunc(h.matching(filter{typ, tenancy, prefix}), func(res *resourcepb.Resource) bool { return keyOf(res.Id) < middle })
		all = append(all[:n:n], rest...)
	}
	return all, nil
}

// matching is called with the lock held.
func (h *handle) matching(f filter) []*resourcepb.Resource {
	var all []*resourcepb.Resource
	for _, row := range h.rows {
		all = append(all, row)
	}
	var found []*resourcepb.Resource
	for _, row := range f.selectFrom(all) {
		found = append(found, clone(row))
	}
	if h.has("sorted by locale") {
		slices.SortStableFunc(found, func(a, b *resourcepb.Resource) int {
			return strings.Compare(strings.ToLower(keyOf(a.Id)), strings.ToLower(keyOf(b.Id)))
		})
	}
	return found
}

func (h *handle) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string, opts storage.ListOptions) (storage.Page, error) {
	var given pageToken
	problem := errorOf(check.Filter(typ, tenancy, prefix))
	if opts.Limit < 0 && !h.has("a negative limit is the default") || opts.Revision < 0 {
		problem = errors.Join(problem, invalid("limit %d, revision %d", opts.Limit, opts.Revision))
	}
	if opts.Continue != "" && json.Unmarshal([]byte(opts.Continue), &given) != nil {
		problem = errors.Join(problem, invalid("continue token %q", opts.Continue))
	}
	if err := h.enter(ctx, check.Consistency(opts.Consistency), problem); err != nil {
		return storage.Page{}, err
	}
	limit := cmp.Or(max(opts.Limit, 0), 10)
	if h.has("a page exceeds its limit") {
		limit++
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f := filter{typ, tenancy, prefix}
	token := pageToken{Store: h.name, Filter: f.String(), Cursor: h.cursor(len(h.log)), Revision: opts.Revision}
	rest := h.matching(f)
	if h.has("the cursor of a listing is too late") {
		h.pause()
		token.Cursor = h.cursor(len(h.log))
	}
	if opts.Revision != 0 {
		if err := h.reach(opts.Revision); err != nil {
			return storage.Page{}, err
		}
		rest = h.listAt(f, opts.Revision)
	}
	if opts.Continue != "" {
		if opts.Revision != 0 && opts.Revision != given.Revision {
			return storage.Page{}, invalid("revision %d", opts.Revision)
		}
		if h.lister != h.closed && h.has("a token goes with its handle") {
			return storage.Page{}, storage.ErrCompacted
		}
		kept := h.lists[opts.Continue]
		switch {
		case kept == nil && h.has("a token goes with any store"):
			kept = rest
		case kept == nil && h.has("a token of no listing lists everything"):
			kept = h.matching(allFilter)
		}
		if given.Store != h.name && !h.has("a token goes with any store") {
			return storage.Page{}, storage.ErrCompacted
		}
		if token = given; token.Filter != f.String() && !h.has("a token goes with any filter") || kept == nil {
			return storage.Page{}, invalid("continue token %q", opts.Continue)
		}
		rest = kept
		if h.has("pages skip one") {
			rest = rest[min(1, len(rest)):]
		}
	}
	page := storage.Page{Cursor: token.Cursor}
	for _, res := range rest[:min(limit, len(rest))] {
		page.Resources = append(page.Resources, clone(res))
	}
	if len(rest) > limit {
		token.List = rand.Text()
		h.lister = h.closed
		text, err := json.Marshal(token)
		if err != nil {
			return storage.Page{}, err
		}
		page.Continue = string(text)
		h.lists[page.Continue] = rest[limit:]
	}
	return page, nil
}

type pageToken struct {
	Store, Filter, Cursor, List string
	Revision                    int64
}

func (h *handle) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	if err := h.enter(ctx, errorOf(check.IDWithUid("id", id))); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var children []*resourcepb.ID
	for _, row := range h.matching(newFilter("*", "*", "*", "*", "")) {
		if row.Owner != nil && keyOf(row.Owner) == keyOf(id) && (h.sameUid(row.Owner.Uid, id.Uid) || h.has("owners by key only")) {
			children = append(children, row.Id)
		}
	}
	return children, nil
}
