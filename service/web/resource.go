package web

import (
	"net/http"

	"github.com/ashlar-dev/storage/resourcepb"
)

// read reads a resource.
func (h *handler) read(w http.ResponseWriter, r *request) error {
	if revision, err := r.query.revision("at"); err != nil {
		return err
	} else if revision > 0 {
		return h.readAt(w, r, revision)
	}
	got, err := h.client.Read(r.Context(), &resourcepb.ReadRequest{Id: r.target.id(r.query)})
	if err != nil {
		return err
	}
	return answer(w, r.target.codec, got.GetResource())
}

// write creates or updates a resource and answers with the stored one.
func (h *handler) write(w http.ResponseWriter, r *request) error {
	body, err := h.body(w, r)
	if err != nil {
		return err
	}
	res, err := r.target.codec.resource(body)
	if err != nil {
		return err
	}
	completed, err := setID(res, r.target, r.query)
	if err != nil {
		return err
	}
	written, err := h.client.Write(r.Context(), &resourcepb.WriteRequest{Resource: res})
	if err != nil && completed {
		if f := failureOf(err); f.Code == http.StatusBadRequest { // a tenancy of the body that is invalid, or that the type does not have
			f.Code = http.StatusUnprocessableEntity
			return f
		}
	}
	if err != nil {
		return err
	}
	return answer(w, r.target.codec, written.GetResource())
}

// setID sets the id and the version in the resource of a body to the values of the request. Values in the body must agree with them, and complete
// the id, which setID reports.
func setID(res *resourcepb.Resource, t target, q query) (completed bool, err error) {
	id := t.id(q)
	given := res.GetId()
	for _, part := range []struct {
		field, inBody string
		inRequest     *string
	}{
		{"id.type.group", given.GetType().GetGroup(), &id.Type.Group},
		{"id.type.groupVersion", given.GetType().GetGroupVersion(), &id.Type.GroupVersion},
		{"id.type.kind", given.GetType().GetKind(), &id.Type.Kind},
		{"id.tenancy.partition", given.GetTenancy().GetPartition(), &id.Tenancy.Partition},
		{"id.tenancy.namespace", given.GetTenancy().GetNamespace(), &id.Tenancy.Namespace},
		{"id.name", given.GetName(), &id.Name},
		{"id.uid", given.GetUid(), &id.Uid},
	} {
		if part.inBody != "" && *part.inRequest != "" && part.inBody != *part.inRequest {
			return false, contradiction("body invalid: %s is %.80q, but the request is for %.80q", part.field, part.inBody, *part.inRequest)
		}
		if *part.inRequest == "" && part.inBody != "" {
			*part.inRequest, completed = part.inBody, true
		}
	}
	if requested := q.get("version"); requested != "" {
		if given := res.GetVersion(); given != "" && given != requested {
			return false, contradiction("body invalid: version is %.80q, but the request is for %.80q", given, requested)
		}
		res.Version = requested
	}
	res.Id = id
	return completed, nil
}

// delete deletes a resource. The answer has no body.
func (h *handler) delete(w http.ResponseWriter, r *request) error {
	_, err := h.client.Delete(r.Context(), &resourcepb.DeleteRequest{Id: r.target.id(r.query), Version: r.query.get("version")})
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// writeStatus writes a status and answers with the stored resource.
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
