package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// Backend is a storage backend that calls a resource service.
type Backend struct {
	conn     *grpc.ClientConn // nil for a server in the same process
	service  resourcegrpc.ResourceServiceClient
	history  resourcegrpc.HistoryServiceClient
	address  string
	versions map[storage.UnversionedType]string // the group versions of the types of the options
	lifetime context.Context                    // ends when the backend is closed
	cancel   context.CancelCauseFunc            // ends lifetime
	// Bookmarks makes watches opened from now on implement BookmarkedWatch. They receive a bookmark about once a second.
	Bookmarks bool
}

// callTimeout bounds calls whose context has no deadline, like the timeout of a store.
const callTimeout = 30 * time.Second

// pageSize is the maximum number of resources per request, and the default if the caller sets no limit.
const pageSize = 500

// errClosed ends the watches of a closed backend.
var errClosed = fmt.Errorf("%w: %w", storage.ErrClosed, storage.ErrWatchClosed)

// checkOpen returns an error if the backend is closed or ctx has ended.
func (b *Backend) checkOpen(ctx context.Context) error {
	if b.lifetime.Err() != nil {
		return storage.ErrClosed
	}
	return ctx.Err()
}

// withCallTimeout returns ctx with the deadline of a call, if it has none.
func withCallTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, callTimeout)
}

// call calls a method of the service within a bounded time, with strong consistency if c says so.
func call[Req, Res any](ctx context.Context, b *Backend, c storage.ReadConsistency,
	method func(context.Context, Req, ...grpc.CallOption) (Res, error), req Req,
) (Res, error) {
	if err := b.checkOpen(ctx); err != nil {
		var none Res
		return none, err
	}
	ctx, done := withCallTimeout(ctx)
	defer done()
	if c == storage.StrongConsistency {
		ctx = metadata.AppendToOutgoingContext(ctx, "x-consul-consistency-mode", "consistent")
	}
	res, err := repeat(ctx, func() (Res, error) { return method(ctx, req) })
	return res, b.translateError(ctx, err)
}

// Read returns a resource. If the id has no group version, any stored group version matches.
func (b *Backend) Read(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	if id.GetType().GetGroupVersion() == "" {
		return b.readAny(ctx, c, id)
	}
	res, err := call(ctx, b, c, b.service.Read, &resourcepb.ReadRequest{Id: id})
	if errors.Is(err, errMismatch) {
		stored, err := b.readAny(ctx, c, id)
		if err == nil && stored.GetId().GetType().GetGroupVersion() != id.GetType().GetGroupVersion() {
			err = storage.GroupVersionMismatchError{RequestedType: id.GetType(), Stored: stored}
			stored = nil
		}
		return stored, err
	}
	return res.GetResource(), err
}

// readAny returns the resource stored under an id, whatever its group version.
func (b *Backend) readAny(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	id = proto.CloneOf(id)
	if id.GetType() == nil {
		return nil, b.invalid("an id needs a type")
	}
	id.Type.GroupVersion = storage.Wildcard
	res, err := call(ctx, b, c, b.service.Read, &resourcepb.ReadRequest{Id: id})
	return res.GetResource(), err
}

// WriteCAS creates a resource without a version, and updates a resource with one. The service chooses the uid of a new resource and every
// generation.
func (b *Backend) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if res.GetId() == nil {
		return nil, b.invalid("a resource needs an id")
	}
	res = proto.CloneOf(res)
	res.Generation = ""
	if res.GetVersion() == "" {
		res.Id.Uid, res.Status = "", nil
	}
	req := &resourcepb.WriteRequest{Resource: res, Create: res.GetVersion() == ""}
	stored, err := call(ctx, b, storage.StrongConsistency, b.service.Write, req)
	return stored.GetResource(), err
}

// DeleteCAS deletes a resource at a version, or marks it for deletion if it has finalizers. As in a store, a delete without a uid or without
// a version changes nothing: the service would delete whatever is stored.
func (b *Backend) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	if id.GetUid() == "" || version == "" {
		_, err := b.readAny(ctx, storage.StrongConsistency, id)
		switch {
		case errors.Is(err, storage.ErrNotFound):
			return nil // also if a resource with another uid is stored
		case err == nil && id.GetUid() != "":
			return storage.ErrCASFailure
		}
		return err
	}
	_, err := call(ctx, b, storage.StrongConsistency, b.service.Delete, &resourcepb.DeleteRequest{Id: id, Version: version})
	return err
}

// invalid returns the error of a call whose arguments cannot be sent.
func (b *Backend) invalid(text string) error {
	if b.lifetime.Err() != nil {
		return storage.ErrClosed
	}
	return fmt.Errorf("%w: %s", storage.ErrInvalid, text)
}

// requestType returns the type for a request. Its group version is the one in the options, or a wildcard.
func (b *Backend) requestType(typ storage.UnversionedType) *resourcepb.Type {
	return &resourcepb.Type{Group: typ.Group, GroupVersion: cmp.Or(b.versions[typ], storage.Wildcard), Kind: typ.Kind}
}

// List returns the matching resources that the caller may see.
func (b *Backend) List(ctx context.Context, c storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) ([]*resourcepb.Resource, error) {
	res, err := call(ctx, b, c, b.service.List, &resourcepb.ListRequest{Type: b.requestType(typ), Tenancy: tenancy, NamePrefix: namePrefix})
	return res.GetResources(), err
}

// ListPage returns a page of a list, or the whole list if the server's store has no pages.
func (b *Backend) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string, opts storage.ListOptions) (storage.Page, error) {
	if opts.Revision != 0 {
		return storage.Page{}, fmt.Errorf("%w: a server lists pages of the newest revision only: use RecordsAt to read an older one", storage.ErrInvalid)
	}
	if opts.Limit == 0 {
		opts.Limit = pageSize
	}
	req := &resourcepb.ListRequest{
		Type: b.requestType(typ), Tenancy: tenancy, NamePrefix: namePrefix, Limit: int32(min(opts.Limit, pageSize)), Continue: opts.Continue,
	}
	unpaged := false
	res, err := call(ctx, b, opts.Consistency, func(ctx context.Context, req *resourcepb.ListRequest, o ...grpc.CallOption) (*resourcepb.ListResponse, error) {
		res, err := b.service.List(ctx, req, o...)
		unpaged = status.Code(err) == codes.Unimplemented
		return res, err
	}, req)
	if unpaged {
		all, err := b.List(ctx, opts.Consistency, typ, tenancy, namePrefix)
		return storage.Page{Resources: all}, err
	}
	return storage.Page{Resources: res.GetResources(), Continue: res.GetContinue(), Cursor: res.GetCursor()}, err
}

// OwnerReferences returns the ids of the resources that a resource owns and the caller may see.
func (b *Backend) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	var ids []*resourcepb.ID
	for token := ""; ; {
		res, err := call(ctx, b, storage.StrongConsistency, b.service.ListByOwner, &resourcepb.ListByOwnerRequest{Owner: id, Limit: pageSize, Continue: token})
		if err != nil {
			return nil, err
		}
		for _, owned := range res.GetResources() {
			ids = append(ids, owned.GetId())
		}
		if token = res.GetContinue(); token == "" {
			return ids, nil
		}
	}
}

// Close closes the connection and ends the watches.
func (b *Backend) Close() error {
	if b.lifetime.Err() != nil {
		return nil
	}
	b.cancel(errClosed)
	if b.conn == nil {
		return nil
	}
	return b.conn.Close()
}

// Metadata keys of the service's marks.
const (
	deletionTimestamp = "deletionTimestamp"
	finalizers        = "finalizers"
)

// MarkedForDeletion reports whether a resource is marked for deletion and waits for its finalizers.
func MarkedForDeletion(res *resourcepb.Resource) bool {
	return res.GetMetadata()[deletionTimestamp] != ""
}

// IsDeleted reports whether a resource that was just deleted no longer exists. Otherwise the resource is marked for deletion and waits
// for its finalizers.
func (b *Backend) IsDeleted(ctx context.Context, id *resourcepb.ID) (bool, error) {
	res, err := b.Read(ctx, storage.StrongConsistency, id)
	if errors.Is(err, storage.ErrNotFound) {
		return true, nil
	}
	return !MarkedForDeletion(res), err
}

// KeepMarks copies the service's marks from a stored resource to its replacement res, unless res sets them. The marks belong to the service
// and to controllers, and a manifest does not contain them.
func KeepMarks(res, stored *resourcepb.Resource) {
	for _, mark := range []string{deletionTimestamp, finalizers} {
		value, there := stored.GetMetadata()[mark]
		if _, given := res.GetMetadata()[mark]; there && !given {
			if res.Metadata == nil {
				res.Metadata = map[string]string{}
			}
			res.Metadata[mark] = value
		}
	}
}

// translateError returns the error that a store would have returned.
func (b *Backend) translateError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if b.lifetime.Err() != nil {
		return fmt.Errorf("%w: %w", storage.ErrClosed, storage.ErrInconsistent) // the call was cut off
	}
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("%w: %w", storage.ErrInconsistent, ended)
	}
	s := status.Convert(err)
	reason, reasoned := reasonOf(s)
	kind := errorsByReason[reason]
	if !reasoned {
		kind = errorOf(s)
	}
	switch {
	case plainErrors[kind]:
		return kind
	case errors.Is(kind, storage.ErrInvalid) && !reasoned:
		return fmt.Errorf("%w: %s", kind, s.Message())
	case kind != nil:
		return &serverError{text: s.Message(), kind: kind}
	case !reasoned && s.Code() == codes.DeadlineExceeded: // the server has noticed first that the time is over
		return fmt.Errorf("%w: %w", storage.ErrInconsistent, context.DeadlineExceeded)
	case !reasoned && ambiguousCodes[s.Code()]:
		return fmt.Errorf("%w: the server %s: %s", storage.ErrInconsistent, b.address, s.Message())
	}
	return fmt.Errorf("the server %s: %s", b.address, s.Message())
}
