package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// historyError returns the error that a store would have returned. A server is called without support if its store has no history or if it
// predates the history service.
func (b *Backend) historyError(ctx context.Context, err error) error {
	if status.Code(err) == codes.Unimplemented && ctx.Err() == nil {
		return fmt.Errorf("%w: the server %s: %s", storage.ErrInvalid, b.address, status.Convert(err).Message())
	}
	return b.translateError(ctx, err)
}

// filterScope returns the type and the tenancy of a filter.
func (b *Backend) filterScope(f *key.Filter) (*resourcepb.Type, *resourcepb.Tenancy) {
	return b.requestType(storage.UnversionedType{Group: f.Group, Kind: f.Kind}), &resourcepb.Tenancy{Partition: f.Partition, Namespace: f.Namespace}
}

// Revisions returns the oldest and the newest revision of the server's store. The caller must be allowed to list the filter's type and
// tenancy.
func (b *Backend) Revisions(ctx context.Context, f *key.Filter) (oldest, newest int64, err error) {
	if err := b.checkOpen(ctx); err != nil {
		return 0, 0, err
	}
	typ, tenancy := b.filterScope(f)
	ctx, done := withCallTimeout(ctx)
	defer done()
	res, err := repeat(ctx, func() (*resourcepb.RevisionsResponse, error) {
		return b.history.Revisions(ctx, &resourcepb.RevisionsRequest{Type: typ, Tenancy: tenancy})
	})
	return res.GetOldest(), res.GetNewest(), b.historyError(ctx, err)
}

// RecordsAt returns a function that returns the next page of the records that matched a filter at a revision and that the caller may see,
// in order, and whether more follow. Revision 0 is the newest one.
func (b *Backend) RecordsAt(f *key.Filter, revision int64, limit int) func(context.Context) ([]history.Record, bool, error) {
	typ, tenancy := b.filterScope(f)
	req := &resourcepb.ListAtRequest{
		Type: typ, Tenancy: tenancy, NamePrefix: f.NamePrefix, Revision: revision, Limit: int32(min(limit, pageSize)),
	}
	return func(ctx context.Context) (page []history.Record, more bool, err error) {
		if err := b.checkOpen(ctx); err != nil {
			return nil, false, err
		}
		ctx, done := withCallTimeout(ctx)
		defer done()
		res, err := repeat(ctx, func() (*resourcepb.ListAtResponse, error) { return b.history.ListAt(ctx, req) })
		if err != nil {
			return nil, false, b.historyError(ctx, err)
		}
		req.Revision, req.Continue = res.GetRevision(), res.GetContinue()
		for _, r := range res.GetRecords() {
			page = append(page, *recordOf(r))
		}
		return page, req.Continue != "", nil
	}
}

// Changes calls do for each change of a key that the caller may see, in order, from after (exclusive) until a revision (inclusive).
func (b *Backend) Changes(ctx context.Context, id *resourcepb.ID, after, until int64, do func(*history.Change) error) error {
	if err := b.checkOpen(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stream grpc.ServerStreamingClient[resourcepb.Change]
	c, err := repeat(ctx, func() (first *resourcepb.Change, err error) {
		stream, err = b.history.Changes(ctx, &resourcepb.ChangesRequest{
			Type:    b.requestType(storage.UnversionedTypeFrom(id.GetType())),
			Tenancy: id.GetTenancy(), Name: id.GetName(), After: after, Until: until,
		})
		if err != nil {
			return nil, err
		}
		return stream.Recv()
	})
	for ; err == nil; c, err = stream.Recv() {
		change := history.Change{Revision: c.GetRevision(), New: recordOf(c.GetNow()), Old: recordOf(c.GetBefore()), More: c.GetMore()}
		if err := do(&change); err != nil {
			return err
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return b.historyError(ctx, err)
}

// recordOf converts a record of a response. It returns nil for nil.
func recordOf(r *resourcepb.Record) *history.Record {
	if r == nil {
		return nil
	}
	return &history.Record{Resource: r.GetResource(), Created: r.GetCreated(), Modified: r.GetModified(), Writes: r.GetWrites()}
}
