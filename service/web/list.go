package web

import (
	"net/http"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

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
	if err := r.query.only(unwatchedParameters, "without watch"); err != nil {
		return err
	}
	limit, err := r.query.limit()
	if err != nil {
		return err
	}
	codecOf := func(*resourcepb.Resource) codec { return r.target.codec }
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
		out.end([2]string{"continue", page.next}, [2]string{"cursor", page.cursor})
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
