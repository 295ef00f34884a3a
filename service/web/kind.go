package web

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/ashlar-dev/storage"
)

// resolveKind replaces the kind of a target in an open registry by the stored kind that equals it when case is ignored. A kind that is stored as
// given, or not at all, stays.
func (h *handler) resolveKind(ctx context.Context, t *target, q query) error {
	group, kind := t.typ.GetGroup(), t.typ.GetKind()
	if !h.routes.open || h.kinds == nil || group == "" || group == storage.Wildcard || kind == "" || kind == storage.Wildcard {
		return nil
	}
	name := group + "/" + kind
	if h.storedKinds.has(name) {
		return nil
	}
	found, err := h.kinds(ctx, group, kind, q.tenancy())
	switch {
	case err != nil:
		return err
	case slices.Contains(found, kind):
		h.storedKinds.add(name)
	case len(found) == 1:
		t.typ.Kind = found[0]
	case len(found) == 0 && 'a' <= kind[0] && kind[0] <= 'z':
		return refuse(http.StatusNotFound, "no kind of the group %.80q is %.80q in another case: a new kind begins with an upper-case letter", group, kind)
	case len(found) > 1:
		return contradiction("the kind %.80q is ambiguous: the store has %s", kind, strings.Join(found, ", "))
	}
	return nil
}
