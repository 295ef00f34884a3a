package web

import (
	"net/http"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// list lists the resources of a type, or watches them.
func (h *handler) list(w http.ResponseWriter, r *request) error {
	if r.query.has("watch") {
		if err := r.query.only(watchParameters, "with watch"); err != nil {
			return err
		}
		return h.watch(w, r)
	}
	if r.query.has("changes") {
		if err := r.query.only(changesParameters, "with changes"); err != nil {
			return err
		}
		return h.changes(w, r)
	}
	if r.query.has("diff") {
		if err := r.query.only(diffParameters, "with diff"); err != nil {
			return err
		}
		return h.diff(w, r)
	}
	if err := r.query.only(unwatchedParameters, "without watch"); err != nil {
		return err
	}
	limit, err := r.query.limit()
	if err != nil {
		return err
	}
	revision, err := r.query.revision("at")
	if err != nil {
		return err
	}
	codecOf := h.codecOf(r.target)
	if revision > 0 {
		return h.answerPages(w, limit, r.query.get("continue"), codecOf, h.listAt(r, revision))
	}
	return h.answerPages(w, limit, r.query.get("continue"), codecOf, func(limit int32, token string) (listedPage, error) {
		listed, err := h.client.List(r.Context(), &resourcepb.ListRequest{
			Type: r.target.typ, Tenancy: r.query.tenancy(), NamePrefix: r.query.get("name_prefix"), Limit: limit, Continue: token,
		})
		return listedPage{listed.GetResources(), listed.GetContinue(), listed.GetCursor()}, err
	})
}

// listOwned lists the resources that a resource owns. Without a uid it uses the stored incarnation.
func (h *handler) listOwned(w http.ResponseWriter, r *request) error {
	limit, err := r.query.limit()
	if err != nil {
		return err
	}
	owner := r.target.id(r.query)
	if owner.GetUid() == "" {
		read, err := h.client.Read(r.Context(), &resourcepb.ReadRequest{Id: owner})
		if err != nil {
			return err
		}
		owner = read.GetResource().GetId()
	}
	codecOf := func(res *resourcepb.Resource) codec {
		if r.target.codec.message == nil {
			return r.target.codec
		}
		return h.routes.codecs.of(res.GetId().GetType())
	}
	depth, err := r.query.depth()
	if err != nil {
		return err
	}
	if depth > 1 {
		if err := r.query.only(treeParameters, "with depth"); err != nil {
			return err
		}
		return h.answerTree(w, r, owner, depth, codecOf)
	}
	return h.answerPages(w, limit, r.query.get("continue"), codecOf, func(limit int32, token string) (listedPage, error) {
		listed, err := h.client.ListByOwner(r.Context(), &resourcepb.ListByOwnerRequest{Owner: owner, Limit: limit, Continue: token})
		return listedPage{resources: listed.GetResources(), next: listed.GetContinue()}, err
	})
}

// pageLimit is the number of resources of the pages of a list without a limit. The service bounds the bytes of each page.
const pageLimit = 500

// listedPage is a page of a list.
type listedPage struct {
	resources    []*resourcepb.Resource
	next, cursor string
}

// answerPages writes a page of a list, or a whole list page by page if limit is 0, so that one page is in memory. It writes resources with the
// codecs that codecOf returns.
func (h *handler) answerPages(
	w http.ResponseWriter, limit int32, token string, codecOf func(*resourcepb.Resource) codec, list func(limit int32, token string) (listedPage, error),
) error {
	whole := limit == 0 && token == ""
	if whole {
		limit = pageLimit
	}
	page, err := list(limit, token)
	if whole && grpcstatus.Code(err) == codes.Unimplemented {
		page, err = list(0, "") // the store cannot list in pages
	}
	if err != nil {
		return err
	}
	out := startList(w, h.stallTimeout, codecOf)
	out.add(page.resources)
	if !whole {
		out.end(textMember("continue", page.next), textMember("cursor", page.cursor))
		return nil
	}
	for page.next != "" {
		if page, err = list(limit, page.next); err != nil {
			panic(http.ErrAbortHandler) // the answer has begun: its reader has to see that it is incomplete
		}
		out.add(page.resources)
	}
	out.end()
	return nil
}

// maxTree is the maximum number of resources in a tree.
const maxTree = 10_000

// answerTree writes the resources that an owner owns, those that they own, and so on, each after its owner's generation. Each has its owner.
func (h *handler) answerTree(w http.ResponseWriter, r *request, root *resourcepb.ID, depth int, codecOf func(*resourcepb.Resource) codec) error {
	children := func(owner *resourcepb.ID, token string) (*resourcepb.ListByOwnerResponse, error) {
		return h.client.ListByOwner(r.Context(), &resourcepb.ListByOwnerRequest{Owner: owner, Limit: pageLimit, Continue: token})
	}
	page, err := children(root, "")
	if err != nil {
		return err
	}
	out := startList(w, h.stallTimeout, codecOf)
	type owned struct {
		key key.Key
		uid string
	}
	seen := map[owned]bool{{key.Of(root), root.GetUid()}: true} // a store may have a cycle of owners
	owners := []*resourcepb.ID{root}
	for generation := 1; len(owners) > 0; generation++ {
		var next []*resourcepb.ID
		for _, owner := range owners {
			for token, first := "", true; first || token != ""; first = false {
				if page == nil {
					page, err = children(owner, token)
					if code := grpcstatus.Code(err); code == codes.PermissionDenied || code == codes.InvalidArgument {
						break // the caller may see this resource, but not list what it owns; or the service accepts no such owner
					}
					if err != nil {
						panic(http.ErrAbortHandler) // the answer has begun: its reader has to see that it is incomplete
					}
				}
				for _, res := range page.GetResources() {
					if one := (owned{key.Of(res.GetId()), res.GetId().GetUid()}); !seen[one] {
						if len(seen) > maxTree {
							out.end([2]string{"truncated", "true"})
							return nil
						}
						seen[one] = true
						out.add([]*resourcepb.Resource{res})
						next = append(next, res.GetId())
					}
				}
				token, page = page.GetContinue(), nil
			}
		}
		if owners = next; generation == depth {
			break
		}
	}
	out.end()
	return nil
}

// textMember returns a member of an answer with a text, or an empty one.
func textMember(name, text string) [2]string {
	if text == "" {
		return [2]string{}
	}
	return [2]string{name, string(quote(text))}
}

// listAt returns a function that lists pages at a revision.
func (h *handler) listAt(r *request, revision int64) func(limit int32, token string) (listedPage, error) {
	return func(limit int32, token string) (listedPage, error) {
		if h.history == nil {
			return listedPage{}, errNoHistory
		}
		got, err := h.history.ListAt(r.Context(), &resourcepb.ListAtRequest{
			Type: r.target.typ, Tenancy: r.query.tenancy(), NamePrefix: r.query.get("name_prefix"), Revision: revision, Limit: limit, Continue: token,
		})
		page := listedPage{next: got.GetContinue()}
		for _, record := range got.GetRecords() {
			page.resources = append(page.resources, record.GetResource())
		}
		return page, err
	}
}
