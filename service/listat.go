package service

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/ranges"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A page of the past ends at so many bytes, if it has a record, and without a limit of the caller's at so many records.
const (
	maxListAtBytes   = 1 << 20
	maxListAtRecords = 500
)

// ListAt returns a page of the resources of a type and tenancy, as they were at a revision, that the caller may see. Those of another group
// version of the type are left out, as by List.
func (s *Server) ListAt(ctx context.Context, req *resourcepb.ListAtRequest) (*resourcepb.ListAtResponse, error) {
	switch {
	case req.GetRevision() < 0:
		return nil, invalid("revision invalid: it is negative")
	case req.GetLimit() < 0:
		return nil, invalid("limit invalid: it is negative")
	case req.GetContinue() != "" && req.GetRevision() == 0:
		return nil, invalid("revision is required with continue: that of the answer before")
	}
	v, err := s.openHistoryView(ctx, req.GetType(), req.GetTenancy(), req.GetNamePrefix())
	if err != nil {
		return nil, err
	}
	h, err := s.historian()
	if err != nil {
		return nil, err
	}
	filter := v.filter(req.GetNamePrefix())
	rest, err := rangeAfter(filter, req.GetContinue())
	if err != nil {
		return nil, err
	}
	page, err := v.page(ctx, h, filter, rest, req.GetRevision(), int(req.GetLimit()))
	if err != nil {
		return nil, s.toStatus(ctx, "list the past", err)
	}
	return page, nil
}

// page reads on until the page is full and there is one more record that the caller may see, or nothing is left. So a continue token names
// what the caller may see, and says of what it may not see not even that there is something.
func (v *historyView) page(
	ctx context.Context, h history.Historian, filter *ranges.Filter, rest history.Span, revision int64, limit int,
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
			record, err := v.visibleRecord(ctx, &scan.Records[i])
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
