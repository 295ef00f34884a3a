package web

import (
	"net/http"

	"github.com/ashlar-dev/storage/resourcepb"
)

// read answers with a resource.
func (h *handler) read(w http.ResponseWriter, r *request) error {
	got, err := h.client.Read(r.Context(), &resourcepb.ReadRequest{Id: r.target.id(r.query)})
	if err != nil {
		return err
	}
	return answer(w, r.target.codec, got.GetResource())
}

// write creates or updates a resource, and answers with it as it was stored.
func (h *handler) write(w http.ResponseWriter, r *request) error {
	body, err := h.body(w, r)
	if err != nil {
		return err
	}
	res, err := r.target.codec.resource(body)
	if err != nil {
		return err
	}
	if err := setID(res, r.target, r.query); err != nil {
		return err
	}
	written, err := h.client.Write(r.Context(), &resourcepb.WriteRequest{Resource: res})
	if err != nil {
		return err
	}
	return answer(w, r.target.codec, written.GetResource())
}

// setID gives the resource of a body the id that the request names, and its version. What the body has of them must agree.
func setID(res *resourcepb.Resource, t target, q query) error {
	id := t.id(q)
	said := res.GetId()
	for _, part := range []struct {
		what, said string
		asked      *string
	}{
		{"id.type.group", said.GetType().GetGroup(), &id.Type.Group},
		{"id.type.groupVersion", said.GetType().GetGroupVersion(), &id.Type.GroupVersion},
		{"id.type.kind", said.GetType().GetKind(), &id.Type.Kind},
		{"id.tenancy.partition", said.GetTenancy().GetPartition(), &id.Tenancy.Partition},
		{"id.tenancy.namespace", said.GetTenancy().GetNamespace(), &id.Tenancy.Namespace},
		{"id.name", said.GetName(), &id.Name},
		{"id.uid", said.GetUid(), &id.Uid},
	} {
		if part.said != "" && *part.asked != "" && part.said != *part.asked {
			return refuse(http.StatusBadRequest, "body invalid: %s is %.80q, but the request is for %.80q", part.what, part.said, *part.asked)
		}
		if *part.asked == "" {
			*part.asked = part.said
		}
	}
	if asked := q.get("version"); asked != "" {
		if said := res.GetVersion(); said != "" && said != asked {
			return refuse(http.StatusBadRequest, "body invalid: version is %.80q, but the request is for %.80q", said, asked)
		}
		res.Version = asked
	}
	res.Id = id
	return nil
}

// delete deletes a resource. There is nothing to answer.
func (h *handler) delete(w http.ResponseWriter, r *request) error {
	_, err := h.client.Delete(r.Context(), &resourcepb.DeleteRequest{Id: r.target.id(r.query), Version: r.query.get("version")})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// writeStatus writes a status, and answers with the resource as it was stored.
func (h *handler) writeStatus(w http.ResponseWriter, r *request) error {
	body, err := h.body(w, r)
	if err != nil {
		return err
	}
	status, err := r.target.codec.status(body)
	if err != nil {
		return err
	}
	written, err := h.client.WriteStatus(r.Context(), &resourcepb.WriteStatusRequest{
		Id: r.target.id(r.query), Version: r.query.get("version"), Key: r.target.key, Status: status,
	})
	if err != nil {
		return err
	}
	return answer(w, r.target.codec, written.GetResource())
}
