package conformance

import (
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

func (m *modelRun) readOne() {
	m.read(m.handle(), m.draw.id(), pick(m.draw, consistencies...))
}

func (m *modelRun) read(h *modelHandle, id *resourcepb.ID, consistency storage.ReadConsistency) {
	now := resourceOf(m.store.now[keyOf(id)])
	id.Uid = pick(m.draw, "", now.GetId().GetUid(), now.GetId().GetUid(), now.GetId().GetUid()+" ")
	if now != nil && m.draw.chance(50) {
		id.Type.GroupVersion = now.Id.Type.GroupVersion
	}
	m.note("%v read of %s", consistency, idText(id))
	got, err := h.Read(m.ctx, consistency, id)
	if consistency == eventual {
		h.checkRead(id, got, err)
		return
	}
	if readMatches(now, id, got, err) {
		return
	}
	check := "reads show written states"
	if now != nil && now.Id.Type.GroupVersion != id.Type.GroupVersion {
		check = "group versions"
	}
	failCheck(check, "Read of %s: got %s, error %v, stored is %s", idText(id), shortText(got), quoteError(err), shortText(now))
}

func (m *modelRun) listSome() {
	h, f := m.handle(), m.draw.filter()
	if pick(m.draw, consistencies...) == strong {
		m.note("strong list of %v", f)
		m.checkList(h, f, "reads show written states")
		return
	}
	m.note("eventual list of %v", f)
	m.checkEventualList(h, f)
}

// checkList demands that a strong list shows the content of the model. Check is the promise that a difference breaks.
func (m *modelRun) checkList(h *modelHandle, f filter, check string) {
	got, err := h.List(m.ctx, strong, f.typ, f.tenancy, f.prefix)
	m.succeeds("reads show written states", "List", err)
	if len(got) == 0 && got != nil {
		failCheck("empty results are nil", "List of %v returned an empty slice that is not nil", f)
	}
	want := f.selectFrom(m.store.resources())
	if err = compareLists(got, want); err == nil {
		return
	}
	inOrder(got)
	if compareLists(got, want) == nil {
		check = "order of lists"
	} else if f.String() != allFilter.String() {
		m.checkList(h, allFilter, check)
		check = "filters"
	}
	failCheck(check, "List of %v: %v", f, err)
}

func (m *modelRun) checkEventualList(h *modelHandle, f filter) {
	got, err := h.List(m.ctx, eventual, f.typ, f.tenancy, f.prefix)
	m.succeeds("reads show written states", "List", err)
	m.checkEventualResources(h, f, got)
}

func (m *modelRun) checkEventualResources(h *modelHandle, f filter, got []*resourcepb.Resource) {
	if len(got) == 0 && got != nil {
		failCheck("empty results are nil", "an eventual List of %v returned an empty slice that is not nil", f)
	}
	byKey := make(map[string]*resourcepb.Resource)
	for i, res := range got {
		byKey[keyOf(res.Id)] = res
		if i > 0 && keyOf(got[i-1].Id) >= keyOf(res.Id) {
			failCheck("order of lists", "an eventual List of %v shows %s after %s", f, shortText(res), shortText(got[i-1]))
		}
		if !f.selects(res.Id) {
			failCheck("filters", "an eventual List of %v shows %s", f, shortText(res))
		}
	}
	for _, id := range m.draw.ids {
		if res := byKey[keyOf(id)]; f.selects(id) {
			if v := h.check(keyOf(id), 0, func(stored *resourcepb.Resource) bool { return sameResource(stored, res) }); v != nil {
				failCheck(v.check, "an eventual List of %v shows %s: %s", f, shortText(res), v.text)
			}
		}
	}
}

// readOwners compares OwnerReferences, an eventual read, with the owners of all keys.
func (m *modelRun) readOwners() {
	owner := m.draw.owner()
	m.note("references of owner %s", idText(owner))
	m.checkOwners(m.handle(), owner)
}

func (m *modelRun) checkOwners(h *modelHandle, owner *resourcepb.ID) {
	got, err := h.OwnerReferences(m.ctx, owner)
	m.succeeds("owner references are true", "OwnerReferences", err)
	if len(got) == 0 && got != nil {
		failCheck("empty results are nil", "OwnerReferences returned an empty slice that is not nil")
	}
	byKey := make(map[string]*resourcepb.ID)
	for i, id := range got {
		if byKey[keyOf(id)] = id; i > 0 && keyOf(got[i-1]) >= keyOf(id) {
			failCheck("owner references are true", "OwnerReferences of %s returned %s after %s", idText(owner), idText(id), idText(got[i-1]))
		}
	}
	for _, id := range m.draw.ids {
		key := keyOf(id)
		ref := byKey[key]
		v := h.check(key, h.references[key], func(stored *resourcepb.Resource) bool {
			return owns(owner, stored) == (ref != nil) && (ref == nil || proto.Equal(ref, stored.Id))
		})
		if v != nil {
			failCheck("owner references are true", "OwnerReferences of %s, %d references: %s", idText(owner), len(got), v.text)
		}
	}
}

// listPages starts a listing, or reads a page after any token of an existing one.
func (m *modelRun) listPages() {
	h := m.handle()
	pager, ok := storage.As[storage.Pager](h.Backend)
	if !ok {
		return
	}
	limit := pick(m.draw, 1, 1, 2, 3, 3, 1000, 0)
	if m.draw.chance(20) {
		f := m.draw.filter()
		m.note("eventual page of %v", f)
		page, err := pager.ListPage(m.ctx, f.typ, f.tenancy, f.prefix, storage.ListOptions{Consistency: eventual, Limit: 1000})
		m.succeeds("pages", "ListPage", err)
		if page.Continue == "" {
			m.checkEventualResources(h, f, slices.Clip(page.Resources))
		}
		return
	}
	if len(m.listings) == 0 || m.draw.chance(35) {
		m.startListing(h, pager, limit)
		return
	}
	l := pick(m.draw, m.listings...)
	if m.h.NoHistorian != "" { // without history, a token may belong to its handle
		pager, _ = storage.As[storage.Pager](l.handle.Backend)
	}
	if len(l.tokens) == 0 {
		return
	}
	token := pick(m.draw, l.tokens...)
	opts := storage.ListOptions{Consistency: strong, Limit: limit, Continue: token.text}
	if f := m.draw.filter(); m.draw.chance(20) && f.String() != l.filter.String() {
		m.note("page of %v with a token of %v", f, l.filter)
		if _, err := pager.ListPage(m.ctx, f.typ, f.tenancy, f.prefix, opts); !errors.Is(err, storage.ErrInvalid) {
			failCheck("tokens belong to a filter", "ListPage of %v with the token of %v: got error %v, want ErrInvalid", f, l.filter, quoteError(err))
		}
		return
	}
	if other := pick(m.draw, append(m.points, modelPoint{})...).revision; l.revision != 0 && other != 0 && other != l.revision && m.draw.chance(20) {
		m.note("page at revision %d with a token of revision %d", other, l.revision)
		opts.Revision = other
		if _, err := pager.ListPage(m.ctx, l.filter.typ, l.filter.tenancy, l.filter.prefix, opts); !errors.Is(err, storage.ErrInvalid) {
			failCheck("the past stays", "ListPage at revision %d with the token of revision %d: got error %v, want ErrInvalid", other, l.revision, quoteError(err))
		}
		return
	}
	m.note("page of %v after %d resources, limit %d", l.filter, len(token.previousPages), limit)
	page, err := pager.ListPage(m.ctx, l.filter.typ, l.filter.tenancy, l.filter.prefix, opts)
	m.succeeds("pages", "ListPage", err)
	l.accept(token, limit, page)
}

func (m *modelRun) startListing(h *modelHandle, pager storage.Pager, limit int) {
	l := &modelListing{handle: h, filter: m.draw.broadFilter(), start: len(m.store.changes), oneCut: m.h.ListIsNoSnapshot == ""}
	l.want = l.filter.selectFrom(m.store.resources())
	if len(m.points) > 0 && m.draw.chance(70) {
		p := pick(m.draw, m.points...)
		l.revision, l.start, l.want = p.revision, p.changes, nil
		for _, r := range m.store.at(p.changes) {
			l.want = append(l.want, r.Resource)
		}
		l.want = l.filter.selectFrom(l.want)
	}
	m.note("first page of %v at revision %d, limit %d", l.filter, l.revision, limit)
	opts := storage.ListOptions{Consistency: strong, Limit: limit, Revision: l.revision}
	page, err := pager.ListPage(m.ctx, l.filter.typ, l.filter.tenancy, l.filter.prefix, opts)
	m.succeeds("pages", "ListPage", err)
	l.cursor = page.Cursor
	if (l.cursor == "") != (m.h.NoResumer != "") {
		failCheck("pages", "a page has cursor %q", l.cursor)
	}
	l.accept(modelToken{}, limit, page)
	m.listings = append(m.listings, l)
	if l.cursor != "" {
		m.addCursor(l.position())
	}
}

func (m *modelRun) addCursor(c modelCursor) {
	if len(m.cursors) < 12 {
		m.cursors = append(m.cursors, c)
		return
	}
	m.cursors[m.draw.IntN(len(m.cursors))] = c
}
