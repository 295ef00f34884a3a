package web

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// errNoHistory is the error of requests for the past if the handler has no history client.
var errNoHistory = refuse(http.StatusNotImplemented, "this server has no history to read")

// revisions writes the oldest and the newest revision.
func (h *handler) revisions(w http.ResponseWriter, r *request) error {
	if h.history == nil {
		return errNoHistory
	}
	got, err := h.history.Revisions(r.Context(), &resourcepb.RevisionsRequest{Type: anyType, Tenancy: r.query.anyTenancy()})
	if err != nil {
		return err
	}
	return answerJSON(w, revisionsAnswer{got.GetOldest(), got.GetNewest()})
}

// revisionsAnswer is the answer to a request for the revisions.
type revisionsAnswer struct {
	Oldest int64 `json:"oldest"`
	Newest int64 `json:"newest"`
}

// readAt reads a resource as it was at a revision.
func (h *handler) readAt(w http.ResponseWriter, r *request, revision int64) error {
	if h.history == nil {
		return errNoHistory
	}
	id := r.target.id(r.query)
	if id.GetTenancy().GetPartition() == storage.Wildcard || id.GetTenancy().GetNamespace() == storage.Wildcard {
		return refuse(http.StatusBadRequest, "a partition or namespace is %q: a read needs one tenancy", storage.Wildcard)
	}
	got, err := h.history.ListAt(r.Context(), &resourcepb.ListAtRequest{
		Type: id.GetType(), Tenancy: id.GetTenancy(), NamePrefix: id.GetName(), Revision: revision, Limit: 1,
	})
	if err != nil {
		return err
	}
	for _, record := range got.GetRecords() { // the name itself is the first one with the prefix
		if found := record.GetResource(); found.GetId().GetName() == id.GetName() && (id.GetUid() == "" || id.GetUid() == found.GetId().GetUid()) {
			return answer(w, r.target.codec, found)
		}
	}
	return refuse(http.StatusNotFound, "resource not found at revision %d", revision)
}

// changeLine is a line of an answer with changes.
type changeLine struct {
	Revision int64           `json:"revision"`
	Change   string          `json:"change"`
	Resource json.RawMessage `json:"resource,omitempty"`
	Before   json.RawMessage `json:"before,omitempty"`
	More     bool            `json:"more,omitempty"`
}

// changes writes the changes of a type, or of a resource, between two revisions, one on a line.
func (h *handler) changes(w http.ResponseWriter, r *request) error {
	if h.history == nil {
		return errNoHistory
	}
	tenancy := r.query.tenancy()
	after, err := r.query.revision("after")
	if err == nil && after == 0 {
		var all *resourcepb.RevisionsResponse
		all, err = h.history.Revisions(r.Context(), &resourcepb.RevisionsRequest{Type: r.target.typ, Tenancy: tenancy})
		after = all.GetOldest()
	}
	if err != nil {
		return err
	}
	until, err := r.query.revision("until")
	if err != nil {
		return err
	}
	stream, err := h.history.Changes(r.Context(), &resourcepb.ChangesRequest{Type: r.target.typ, Tenancy: tenancy, Name: r.target.name, After: after, Until: until})
	if err != nil {
		return err
	}
	first, err := stream.Recv()
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	out := newLines(w, h.stallTimeout, false)
	for change := first; err == nil; change, err = stream.Recv() {
		if err := out.change(h.codecOf(r.target), change); err != nil {
			return nil // the client has disconnected, or does not read
		}
	}
	if !errors.Is(err, io.EOF) {
		out.end(r.Context(), err)
	}
	_ = out.flush() // the client may have disconnected
	return nil
}

// change writes a change.
func (l *lines) change(codecOf func(*resourcepb.Resource) codec, c *resourcepb.Change) (err error) {
	line := changeLine{Revision: c.GetRevision(), Change: "changed", More: c.GetMore()}
	switch {
	case c.GetNow() == nil:
		line.Change = "deleted"
	case c.GetBefore() == nil:
		line.Change = "created"
	}
	encode := func(record *resourcepb.Record) (text json.RawMessage) {
		if res := record.GetResource(); res != nil && err == nil {
			text, err = codecOf(res).encodeResource(res)
		}
		return text
	}
	line.Resource, line.Before = encode(c.GetNow()), encode(c.GetBefore())
	return l.line(line, err)
}

// line writes a value as a line, or an error that prevented it.
func (l *lines) line(value any, err error) error {
	var text []byte
	if err == nil {
		text, err = json.Marshal(value)
	}
	if err != nil {
		l.error(failureOf(err))
		return err
	}
	return l.write(append(text, '\n'))
}
