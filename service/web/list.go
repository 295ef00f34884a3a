package web

import (
	"net/http"

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
	listed, err := h.client.List(r.Context(), &resourcepb.ListRequest{
		Type: r.target.typ, Tenancy: r.query.tenancy(), NamePrefix: r.query.get("name_prefix"), Limit: limit, Continue: r.query.get("continue"),
	})
	if err != nil {
		return err
	}
	codecOf := func(*resourcepb.Resource) codec { return r.target.codec }
	return answerList(w, codecOf, listed.GetResources(), [2]string{"continue", listed.GetContinue()}, [2]string{"cursor", listed.GetCursor()})
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
	listed, err := h.client.ListByOwner(r.Context(), &resourcepb.ListByOwnerRequest{Owner: owner, Limit: limit, Continue: r.query.get("continue")})
	if err != nil {
		return err
	}
	codecOf := func(res *resourcepb.Resource) codec {
		if r.target.codec.message == nil {
			return r.target.codec
		}
		return h.routes.codecs.of(res.GetId().GetType())
	}
	return answerList(w, codecOf, listed.GetResources(), [2]string{"continue", listed.GetContinue()})
}
