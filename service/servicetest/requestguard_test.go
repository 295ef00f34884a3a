package servicetest

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
)

// requestGuard is a client that checks after each call that the request was not modified.
type requestGuard struct {
	testing.TB
	next Client
}

// unchanged calls f with a request and checks that f did not modify it.
func unchanged[Q proto.Message, A any](ctx context.Context, c requestGuard, req Q, opts []grpc.CallOption,
	f func(context.Context, Q, ...grpc.CallOption) (A, error)) (A, error) {
	before := proto.CloneOf(req)
	answer, err := f(ctx, req, opts...)
	if !proto.Equal(before, req) {
		c.Errorf("the request is changed by its call:\n from %s\n   to %s", text(before), text(req))
	}
	return answer, err
}

func (c requestGuard) Read(ctx context.Context, in *resourcepb.ReadRequest, o ...grpc.CallOption) (*resourcepb.ReadResponse, error) {
	return unchanged(ctx, c, in, o, c.next.Read)
}

func (c requestGuard) Write(ctx context.Context, in *resourcepb.WriteRequest, o ...grpc.CallOption) (*resourcepb.WriteResponse, error) {
	return unchanged(ctx, c, in, o, c.next.Write)
}

func (c requestGuard) WriteStatus(ctx context.Context, in *resourcepb.WriteStatusRequest,
	o ...grpc.CallOption) (*resourcepb.WriteStatusResponse, error) {
	return unchanged(ctx, c, in, o, c.next.WriteStatus)
}

func (c requestGuard) List(ctx context.Context, in *resourcepb.ListRequest, o ...grpc.CallOption) (*resourcepb.ListResponse, error) {
	return unchanged(ctx, c, in, o, c.next.List)
}

func (c requestGuard) ListByOwner(ctx context.Context, in *resourcepb.ListByOwnerRequest,
	o ...grpc.CallOption) (*resourcepb.ListByOwnerResponse, error) {
	return unchanged(ctx, c, in, o, c.next.ListByOwner)
}

func (c requestGuard) Delete(ctx context.Context, in *resourcepb.DeleteRequest, o ...grpc.CallOption) (*resourcepb.DeleteResponse, error) {
	return unchanged(ctx, c, in, o, c.next.Delete)
}

func (c requestGuard) MutateAndValidate(ctx context.Context, in *resourcepb.MutateAndValidateRequest,
	o ...grpc.CallOption) (*resourcepb.MutateAndValidateResponse, error) {
	return unchanged(ctx, c, in, o, c.next.MutateAndValidate)
}

func (c requestGuard) WatchList(ctx context.Context, in *resourcepb.WatchListRequest,
	o ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.WatchEvent], error) {
	return unchanged(ctx, c, in, o, c.next.WatchList)
}

func (c requestGuard) Revisions(ctx context.Context, in *resourcepb.RevisionsRequest,
	o ...grpc.CallOption) (*resourcepb.RevisionsResponse, error) {
	return unchanged(ctx, c, in, o, c.next.Revisions)
}

func (c requestGuard) ListAt(ctx context.Context, in *resourcepb.ListAtRequest, o ...grpc.CallOption) (*resourcepb.ListAtResponse, error) {
	return unchanged(ctx, c, in, o, c.next.ListAt)
}

func (c requestGuard) Changes(ctx context.Context, in *resourcepb.ChangesRequest,
	o ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.Change], error) {
	return unchanged(ctx, c, in, o, c.next.Changes)
}

func (c requestGuard) WatchStore(ctx context.Context, in *resourcepb.WatchStoreRequest,
	o ...grpc.CallOption) (grpc.ServerStreamingClient[resourcepb.StoreEvent], error) {
	return unchanged(ctx, c, in, o, c.next.WatchStore)
}
