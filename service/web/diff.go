package web

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// diff writes the resources that differ between two revisions, one on a line, in the order of their keys. It reads both states page by page.
func (h *handler) diff(w http.ResponseWriter, r *request) error {
	from, err := r.query.revision("from")
	if err != nil {
		return err
	}
	to, err := r.query.revision("to")
	switch {
	case err != nil:
		return err
	case from == 0:
		return contradiction("diff needs from, the earlier revision: /revisions has the available ones")
	case to != 0 && to < from:
		return contradiction("to must be from or more, got %d and %d", to, from)
	case h.history == nil:
		return errNoHistory
	}
	before, now := &recordReader{h: h, r: r, revision: from, more: true}, &recordReader{h: h, r: r, revision: to, more: true}
	was, err := before.next(r.Context())
	if err != nil {
		return err
	}
	is, err := now.next(r.Context())
	if err != nil {
		return err
	}
	out := newLines(w, h.stallTimeout, false)
	for err == nil && (was != nil || is != nil) {
		d := compareFirst(was, is)
		if d.change != "" && out.difference(h.codecOf(r.target), d) != nil {
			return nil // the client has disconnected, or does not read
		}
		if d.before != nil {
			was, err = before.next(r.Context())
		}
		if d.now != nil && err == nil {
			is, err = now.next(r.Context())
		}
	}
	if err != nil {
		out.end(r.Context(), err)
	}
	_ = out.flush() // the client may have disconnected
	return nil
}

// recordReader reads the records of a request's type and tenancy at a revision, page by page. Revision 0 is the newest one at the first page.
type recordReader struct {
	h        *handler
	r        *request
	revision int64
	page     []*resourcepb.Record
	token    string
	more     bool
}

// next returns the next record, or nil after the last one.
func (p *recordReader) next(ctx context.Context) (*resourcepb.Record, error) {
	for len(p.page) == 0 {
		if !p.more {
			return nil, nil
		}
		got, err := p.h.history.ListAt(ctx, &resourcepb.ListAtRequest{
			Type: p.r.target.typ, Tenancy: p.r.query.tenancy(), NamePrefix: p.r.query.get("name_prefix"), Revision: p.revision, Continue: p.token,
		})
		if err != nil {
			return nil, err
		}
		p.page, p.revision, p.token, p.more = got.GetRecords(), got.GetRevision(), got.GetContinue(), got.GetContinue() != ""
	}
	first := p.page[0]
	p.page = p.page[1:]
	return first, nil
}

// difference is a resource that differs between two revisions, or does not if change is "". A nil record means that it was not stored.
type difference struct {
	change      string
	before, now *resourcepb.Record
}

// compareFirst compares the record with the smaller key, or both if the keys are equal.
func compareFirst(was, is *resourcepb.Record) difference {
	order := 0
	switch {
	case was == nil:
		order = 1
	case is == nil:
		order = -1
	default:
		order = key.Of(was.GetResource().GetId()).Compare(key.Of(is.GetResource().GetId()))
	}
	switch {
	case order < 0:
		return difference{"deleted", was, nil}
	case order > 0:
		return difference{"created", nil, is}
	case was.GetCreated() != is.GetCreated():
		return difference{"replaced", was, is}
	case was.GetModified() != is.GetModified():
		return difference{"changed", was, is}
	}
	return difference{"", was, is}
}

// differenceLine is a line of an answer with differences.
type differenceLine struct {
	Change   string          `json:"change"`
	Resource json.RawMessage `json:"resource,omitempty"`
	Before   json.RawMessage `json:"before,omitempty"`
}

// difference writes a difference.
func (l *lines) difference(codecOf func(*resourcepb.Resource) codec, d difference) (err error) {
	line := differenceLine{Change: d.change}
	encode := func(record *resourcepb.Record) (text json.RawMessage) {
		if res := record.GetResource(); res != nil && err == nil {
			text, err = codecOf(res).encodeResource(res)
		}
		return text
	}
	line.Resource, line.Before = encode(d.now), encode(d.before)
	return l.line(line, err)
}
