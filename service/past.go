package service

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/ranges"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// historian returns the store as one whose past can be read.
func (s *Server) historian() (history.Historian, error) {
	h, ok := storage.As[history.Historian](s.backend)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "the store does not number its changes, so nothing can be shown of its past")
	}
	return h, nil
}

// historyView is what the caller of a method of the history service may see: what a list of the same type and tenancy would show it. The hooks
// are asked about resources of the past as they were, and answer as they do today.
type historyView struct {
	server     *Server
	name       *resourcepb.Type
	t          *registry.Type
	tenancy    *resourcepb.Tenancy
	visibility *visibility
	recheckAt  time.Time // when the caller is to be authenticated again
}

// openHistoryView checks the type and the tenancy of a request, and that the caller may list them.
func (s *Server) openHistoryView(ctx context.Context, name *resourcepb.Type, asked *resourcepb.Tenancy, prefix string) (*historyView, error) {
	if name == nil {
		return nil, invalid("type is required")
	}
	if asked == nil {
		return nil, invalid("tenancy is required")
	}
	t, tenancy, err := s.resolveList(name, asked, prefix)
	if err != nil {
		return nil, err
	}
	v := &historyView{server: s, name: name, t: t, tenancy: tenancy}
	return v, v.authenticate(ctx)
}

// authenticate asks who calls, and whether the caller may list.
func (v *historyView) authenticate(ctx context.Context) error {
	caller, err := v.server.caller(ctx, v.tenancy)
	if err != nil {
		return err
	}
	if err := v.server.authStatus(ctx, v.t.MayList(caller, v.name, v.tenancy)); err != nil {
		return err
	}
	v.visibility = v.server.newVisibility(caller, v.tenancy)
	v.recheckAt = time.Now().Add(v.server.opts.Recheck)
	return nil
}

// filter returns a filter with all that may be seen and whose name begins so.
func (v *historyView) filter(prefix string) *ranges.Filter {
	return ranges.Matching(storage.UnversionedTypeFrom(v.name), v.tenancy, prefix)
}

// rangeAfter returns the span of a filter behind a continue token, which names the last resource of the page before; "" for the whole span.
func rangeAfter(f *ranges.Filter, token string) (history.Span, error) {
	if token == "" {
		return f.Span(), nil
	}
	last, err := parseToken(token)
	if err == nil && !f.Match(last) {
		err = errBadToken
	}
	if err != nil {
		return history.Span{}, err
	}
	return f.After(last), nil
}

// visibleRecord returns a record as the caller may see it, nil for nothing.
func (v *historyView) visibleRecord(ctx context.Context, r *history.Record) (*resourcepb.Record, error) {
	if r == nil || !matchesType(v.name, r.Resource.GetId().GetType()) {
		return nil, nil
	}
	may, err := v.visibility.mayRead(ctx, v.t, r.Resource)
	if err != nil || !may {
		return nil, err
	}
	return &resourcepb.Record{Resource: r.Resource, Created: r.Created, Modified: r.Modified, Writes: r.Writes}, nil
}
