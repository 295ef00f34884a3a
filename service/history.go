package service

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/ranges"
	"github.com/ashlar-dev/storage/resourcepb"
)

// ListAt limits a page to maxListAtBytes, unless its first record is larger. Without a limit in the request it returns at most
// maxListAtRecords.
const (
	maxListAtBytes   = 1 << 20
	maxListAtRecords = 500
)

// Revisions returns the oldest and the newest readable revision of the store. They are numbers of the whole store, and so disclose
// how many changes it has: only callers that may list the type in the tenancy get them.
func (s *Server) Revisions(ctx context.Context, req *resourcepb.RevisionsRequest) (*resourcepb.RevisionsResponse, error) {
	if _, err := s.openView(ctx, req.GetType(), req.GetTenancy(), ""); err != nil {
		return nil, err
	}
	h, err := s.historian()
	if err != nil {
		return nil, err
	}
	oldest, newest, err := h.Revisions(ctx)
	if err != nil {
		return nil, s.toStatus(ctx, "ask for the revisions", err)
	}
	return &resourcepb.RevisionsResponse{Oldest: oldest, Newest: newest}, nil
}

// ListAt returns a page of the resources of a type and tenancy as they were at a revision, as far as the caller may read them. Resources of
// another group version of the type are converted or omitted, as in List.
func (s *Server) ListAt(ctx context.Context, req *resourcepb.ListAtRequest) (*resourcepb.ListAtResponse, error) {
	switch {
	case req.GetRevision() < 0:
		return nil, invalid("revision invalid: it is negative")
	case req.GetLimit() < 0:
		return nil, invalid("limit invalid: it is negative")
	case req.GetContinue() != "" && req.GetRevision() == 0:
		return nil, refusal("revision is required with continue: pass the revision of the page before")
	}
	v, err := s.openView(ctx, req.GetType(), req.GetTenancy(), req.GetNamePrefix())
	if err != nil {
		return nil, err
	}
	h, err := s.historian()
	if err != nil {
		return nil, err
	}
	filter := v.keys(req.GetNamePrefix())
	rest, err := rangeAfter(filter, req.GetContinue())
	if err != nil {
		return nil, err
	}
	page, err := v.scanPage(ctx, h, filter, rest, req.GetRevision(), int(req.GetLimit()))
	if err != nil {
		return nil, s.toStatus(ctx, "list the past", v.hideDamaged(ctx, err))
	}
	return page, nil
}

// historian returns the history interface of the backend.
func (s *Server) historian() (history.Historian, error) {
	h, ok := storage.As[history.Historian](s.backend)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "the store does not number its changes: it has no history to read")
	}
	return h, nil
}

// keys returns a filter for the ids of the view with a name prefix.
func (v *view) keys(prefix string) *ranges.Filter {
	return ranges.Matching(storage.UnversionedTypeFrom(v.name), v.tenancy, prefix)
}

// rangeAfter returns the keys of a filter after the page whose continue token is given, or all keys if it is "".
func rangeAfter(f *ranges.Filter, token string) (history.Range, error) {
	if token == "" {
		return f.Range(), nil
	}
	last, err := parseToken(token)
	if err == nil && !f.Match(last) {
		err = errBadToken
	}
	if err != nil {
		return history.Range{}, err
	}
	return f.After(last), nil
}

// scanPage scans until the page is full and one more visible record follows, or until the end. So a continue token names a visible resource
// and does not disclose that hidden ones exist.
func (v *view) scanPage(
	ctx context.Context, h history.Historian, filter *ranges.Filter, rest history.Range, revision int64, limit int,
) (*resourcepb.ListAtResponse, error) {
	if limit == 0 {
		limit = maxListAtRecords
	}
	out := &resourcepb.ListAtResponse{Revision: revision}
	opts := history.ScanOptions{Limit: min(limit, maxListAtRecords-1) + 1}
	size := 0
	for more := true; more; {
		opts.Revision = out.Revision
		scan, err := h.Scan(ctx, rest, opts)
		if err != nil {
			return nil, err
		}
		out.Revision, rest, more = scan.Revision, scan.Rest, scan.More
		opts.Limit = max(opts.Limit, minHiddenPage)
		for i := range scan.Records {
			if !filter.Match(scan.Records[i].Resource.GetId()) {
				continue
			}
			record, err := v.record(ctx, &scan.Records[i])
			if err != nil {
				return nil, err
			}
			if record == nil {
				continue
			}
			size += proto.Size(record)
			if n := len(out.Records); n == limit || n > 0 && size > maxListAtBytes {
				out.Continue, err = encodeToken(out.Records[n-1].GetResource().GetId())
				return out, err
			}
			out.Records = append(out.Records, record)
		}
	}
	return out, nil
}

// record returns a record as the caller may see it, or nil if it is hidden. Hooks are called with resources as they were; the
// permissions are the current ones.
func (v *view) record(ctx context.Context, r *history.Record) (*resourcepb.Record, error) {
	if r == nil || !v.selects(r.Resource.GetId().GetType()) {
		return nil, nil
	}
	may, err := v.mayRead(ctx, v.t, r.Resource)
	if err != nil || !may {
		return nil, err
	}
	res, err := v.t.FromStored(r.Resource)
	return recordOf(r, res), err
}

// recordBefore is record for the state before a change. If it cannot be converted, the record has its id alone.
func (v *view) recordBefore(ctx context.Context, r *history.Record) (*resourcepb.Record, error) {
	if r == nil || !v.selects(r.Resource.GetId().GetType()) {
		return nil, nil
	}
	may, err := v.mayRead(ctx, v.t, r.Resource)
	if err != nil || !may {
		return nil, err
	}
	return recordOf(r, v.viewOrID(ctx, v.t, r.Resource)), nil
}

// recordOf returns a record with a resource as it is shown.
func recordOf(r *history.Record, shown *resourcepb.Resource) *resourcepb.Record {
	return &resourcepb.Record{Resource: shown, Created: r.Created, Modified: r.Modified, Writes: r.Writes}
}
