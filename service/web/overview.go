package web

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/ashlar-dev/storage/resourcepb"
)

// whoAmI writes the identity of the caller.
func (h *handler) whoAmI(w http.ResponseWriter, r *request) error {
	token, err := TokenOf(r.Header)
	if err != nil {
		return err
	}
	who, err := h.identify(r.Context(), token)
	if err != nil {
		return err
	}
	return answerJSON(w, who)
}

// typeCount is a type with the number of its resources that the caller may see.
type typeCount struct {
	Type  typeName `json:"type"`
	Path  string   `json:"path"`
	Count int      `json:"count"`
}

// listTypes writes the registered types and the stored types, with the number of their resources. It counts a resource under every group version that
// the server can convert it to. It reads the resources page by page.
func (h *handler) listTypes(w http.ResponseWriter, r *request) error {
	counts := map[typeName]int{}
	for _, t := range h.routes.types {
		counts[nameOf(t)] = 0
	}
	for token := ""; ; {
		page, err := h.client.List(r.Context(), &resourcepb.ListRequest{Type: anyType, Tenancy: r.query.anyTenancy(), Limit: pageLimit, Continue: token})
		if err != nil {
			return err
		}
		for _, res := range page.GetResources() {
			name := nameOf(res.GetId().GetType())
			counts[name]++
			for _, other := range h.routes.otherTypes[name] {
				counts[other]++
			}
		}
		if token = page.GetContinue(); token == "" {
			break
		}
	}
	types := make([]typeCount, 0, len(counts))
	for name, n := range counts {
		types = append(types, typeCount{name, h.routes.pathOf(name), n})
	}
	slices.SortFunc(types, func(a, b typeCount) int {
		return cmp.Or(cmp.Compare(a.Type.Group, b.Type.Group), cmp.Compare(a.Type.Kind, b.Type.Kind), cmp.Compare(a.Type.GroupVersion, b.Type.GroupVersion))
	})
	return answerJSON(w, map[string]any{"types": types})
}

// pathOf returns the path of a type. In an open registry the kind is in camel case.
func (r routes) pathOf(t typeName) string {
	if r.open {
		return t.Group + "/" + t.GroupVersion + "/" + t.Kind
	}
	return pathOf(&resourcepb.Type{Group: t.Group, GroupVersion: t.GroupVersion, Kind: t.Kind})
}
