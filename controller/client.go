package controller

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/clientstore"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// client is the client of a reconcile. Its writes carry a fence, and the cache includes them as soon as they are acknowledged.
type client struct {
	resourcegrpc.ResourceServiceClient
	uncertain *uncertainWrites
	cause     key.Key // the resource that is reconciled
	fence     string  // metadata of writes; "" for none
	endTenure func()  // called if the fence is outdated
}

// fenceKey is the metadata key of a fence.
const fenceKey = "ashlar-fence-bin"

// Read is linearizable.
func (c *client) Read(ctx context.Context, in *resourcepb.ReadRequest, opts ...grpc.CallOption) (*resourcepb.ReadResponse, error) {
	return c.ResourceServiceClient.Read(clientstore.Strong(ctx), in, opts...)
}

// List is linearizable.
func (c *client) List(ctx context.Context, in *resourcepb.ListRequest, opts ...grpc.CallOption) (*resourcepb.ListResponse, error) {
	return c.ResourceServiceClient.List(clientstore.Strong(ctx), in, opts...)
}

// ListByOwner is linearizable.
func (c *client) ListByOwner(ctx context.Context, in *resourcepb.ListByOwnerRequest, opts ...grpc.CallOption) (*resourcepb.ListByOwnerResponse, error) {
	return c.ResourceServiceClient.ListByOwner(clientstore.Strong(ctx), in, opts...)
}

// Write writes a resource and makes the result visible in the cache.
func (c *client) Write(ctx context.Context, in *resourcepb.WriteRequest, opts ...grpc.CallOption) (*resourcepb.WriteResponse, error) {
	return write(ctx, c, in.GetResource().GetId(), func(ctx context.Context) (*resourcepb.WriteResponse, error) {
		return c.ResourceServiceClient.Write(ctx, in, opts...)
	})
}

// WriteStatus writes a status and makes the result visible in the cache.
func (c *client) WriteStatus(ctx context.Context, in *resourcepb.WriteStatusRequest, opts ...grpc.CallOption) (*resourcepb.WriteStatusResponse, error) {
	return write(ctx, c, in.GetId(), func(ctx context.Context) (*resourcepb.WriteStatusResponse, error) {
		return c.ResourceServiceClient.WriteStatus(ctx, in, opts...)
	})
}

// Delete deletes a resource and makes the result visible in the cache. The answer does not say whether the resource is gone or marked for deletion, so
// it is read, unless the watch has delivered the deletion.
func (c *client) Delete(ctx context.Context, in *resourcepb.DeleteRequest, opts ...grpc.CallOption) (*resourcepb.DeleteResponse, error) {
	k := key.Of(in.GetId())
	deleted := deletedRow{}
	if i := c.uncertain.informers.find(k); i != nil {
		k = i.completeKey(k)
		if current := i.copy.Get(k); current != nil && in.GetId().GetUid() == current.Value.res.GetId().GetUid() {
			deleted.uid = in.GetId().GetUid()
		}
	}
	answer, err := c.ResourceServiceClient.Delete(c.withFence(ctx), in, opts...)
	c.noteLoss(err)
	isDeleted := err == nil && c.uncertain.resolveKey(ctx, k, deleted) == nil
	if !isDeleted && !provesNoWrite(err) { // the next reconcile reads it first
		c.uncertain.add(c.cause, k, deleted)
	}
	return answer, err
}

// answer is the answer of a write.
type answer interface{ GetResource() *resourcepb.Resource }

// write calls a method that writes the resource with an id.
func write[A answer](ctx context.Context, c *client, id *resourcepb.ID, call func(context.Context) (A, error)) (A, error) {
	k := key.Of(id)
	i := c.uncertain.informers.find(k)
	if i == nil {
		answer, err := call(c.withFence(ctx))
		c.noteLoss(err)
		return answer, err
	}
	writing := i.copy.Begin([]key.Key{k})
	answer, err := call(c.withFence(ctx))
	stored := answer.GetResource()
	switch {
	case err != nil:
		writing.End(nil, nil)
		if !provesNoWrite(err) {
			c.uncertain.add(c.cause, k, deletedRow{})
		}
	case key.Of(stored.GetId()) != k: // the service has completed the tenancy
		writing.End(nil, nil)
		c.uncertain.add(c.cause, key.Of(stored.GetId()), deletedRow{})
	case isRemoval(stored), stored.GetVersion() == "": // deleted, or the caller may not read it
		writing.End(nil, nil)
		c.uncertain.add(c.cause, k, deletedRow{})
	default:
		for _, k := range writing.End([]*resourcepb.Resource{proto.CloneOf(stored)}, nil) {
			c.uncertain.add(c.cause, k, deletedRow{})
		}
	}
	c.noteLoss(err)
	return answer, err
}

// isRemoval reports whether the answer of a write is a resource that the write has deleted: it has a deletion mark and no finalizers.
func isRemoval(res *resourcepb.Resource) bool {
	return hasDeletionMark(res.GetMetadata()) && res.GetMetadata()[finalizersKey] == ""
}

// The metadata of a deferred deletion.
const (
	deletionKey   = "deletionTimestamp"
	finalizersKey = "finalizers"
)

func hasDeletionMark(metadata map[string]string) bool {
	_, marked := metadata[deletionKey]
	return marked
}

func (c *client) withFence(ctx context.Context) context.Context {
	if c.fence == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, fenceKey, c.fence)
}

// noteLoss ends the tenure after an error that proves its end.
func (c *client) noteLoss(err error) {
	if err != nil && c.endTenure != nil && clientstore.Reason(err) == reasonLeaseLost {
		c.endTenure()
	}
}
