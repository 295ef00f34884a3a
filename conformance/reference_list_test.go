package conformance

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	mathrand "math/rand/v2"
	"path"
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
	if n := len(all) / 2; n > 0 && h.has("a list read in two halves") || n > 150 && h.has("a long list is read in two halves") {
		middle := keyOf(all[n].Id)
		h.pause()
		rest := slices.DeleteFunc(h.matching(filter{typ, tenancy, prefix}), func(res *resourcepb.Resource) bool { return keyOf(res.Id) < middle })
		all = append(all[:n:n], rest...)
	}
	if all == nil && h.has("lists of nothing are empty") {
		return []*resourcepb.Resource{}, nil
	}
	return all, nil
}

// matching is called with the lock held.
func (h *handle) matching(f filter) []*resourcepb.Resource {
	switch {
	case h.has("kinds have no wildcard") && f.typ.Kind == storage.Wildcard && f.typ.Group != storage.Wildcard:
		return nil
	case h.has("an empty unit is a wildcard") && f.tenancy.Partition == "":
		f.tenancy = &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: f.tenancy.Namespace}
	}
	pattern := strings.NewReplacer("%", "*", "_", "?").Replace(f.prefix) + "*"
	if h.has("the prefix is a pattern") {
		f.prefix = ""
	}
	var all []*resourcepb.Resource
	for _, row := range h.visible() {
		if matches, _ := path.Match(pattern, row.Id.Name); matches || !h.has("the prefix is a pattern") {
			all = append(all, row)
		}
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

// visible returns the rows that lists show.
func (h *handle) visible() map[string]*resourcepb.Resource {
	rows := maps.Clone(h.rows)
	for _, c := range slices.Backward(h.hidden) {
		if before := h.at(c.key, h.positionAfter(c.revision-1)); before != nil {
			rows[c.key] = before
		} else {
			delete(rows, c.key)
		}
	}
	return rows
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
	token := pageToken{Store: h.name, Filter: f.String(), Prefix: prefix, Cursor: h.cursor(len(h.log)), Revision: opts.Revision}
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
	switch {
	case opts.Continue == "":
	case h.has("pages read the present"):
		token = given
		rest = rest[min(given.Row, len(rest)):]
	default:
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
		case given.Prefix != "" && h.has("a token has its own prefix"):
			f.prefix = given.Prefix
			kept, given.Filter = h.matching(f), f.String()
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
	if h.has("each page has its own cursor") {
		page.Cursor = h.cursor(len(h.log))
	}
	n := min(limit, len(rest))
	if mathrand.IntN(5) == 0 {
		n = 0 // a page may be empty, also the first
	}
	for _, res := range rest[:n] {
		page.Resources = append(page.Resources, clone(res))
	}
	if len(rest) > n {
		token.List, token.Row = rand.Text(), token.Row+n
		h.lister = h.closed
		text, err := json.Marshal(token)
		if err != nil {
			return storage.Page{}, err
		}
		page.Continue = string(text)
		h.lists[page.Continue] = rest[n:]
	}
	return page, nil
}

type pageToken struct {
	Store, Filter, Prefix, Cursor, List string
	Revision                            int64
	Row                                 int // of the next page
}

func (h *handle) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	if err := h.enter(ctx, errorOf(check.IDWithUid("id", id))); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	children := []*resourcepb.ID{}
	for _, row := range h.matching(newFilter("*", "*", "*", "*", "")) {
		if h.owns(id, row) || h.has("a reference stays when the owner changes") && h.owned(id, row) {
			children = append(children, row.Id)
		}
	}
	if again := h.asked[id.Uid]; len(children) > 0 && (!again && h.has("owner references lag") || h.sometimes("a reference is missing", 20)) {
		children = slices.Clip(children[:len(children)-1])
	}
	h.asked[id.Uid] = true
	if len(children) > 0 || h.has("references of nothing are empty") {
		return children, nil
	}
	return nil, nil
}

func (h *handle) owns(owner *resourcepb.ID, res *resourcepb.Resource) bool {
	return res.Owner != nil && keyOf(res.Owner) == keyOf(owner) && (h.sameUid(res.Owner.Uid, owner.Uid) || h.has("owners by key only"))
}

// owned reports whether one of the last versions of a resource named an owner.
func (h *handle) owned(owner *resourcepb.ID, res *resourcepb.Resource) bool {
	return slices.ContainsFunc(h.log[max(0, len(h.log)-100):], func(c change) bool {
		return c.key == keyOf(res.Id) && !c.deleted && h.owns(owner, c.res)
	})
}
