// Package clientstore presents the resources of one type, as a client of the resource service sees them, as a [storage.Backend] for reads and
// watches. So a copy of package replica can be fed by a service.
package clientstore

import (
	"context"
	"fmt"
	"log/slog"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// Store reads and watches the resources of one type and tenancy. It is safe for concurrent use. Its watches ignore the filter of the call: they
// always have the type and the tenancy of the store.
type Store struct {
	client  resourcegrpc.ResourceServiceClient
	typ     *resourcepb.Type
	tenancy *resourcepb.Tenancy // nil for all of the type's scope
	log     *slog.Logger
}

// New returns a store of the resources of a type in a tenancy, nil for all tenancies. Its watches report outages to log.
func New(client resourcegrpc.ResourceServiceClient, typ *resourcepb.Type, tenancy *resourcepb.Tenancy, log *slog.Logger) *Store {
	return &Store{client: client, typ: proto.CloneOf(typ), tenancy: proto.CloneOf(tenancy), log: log}
}

// Strong returns a context for calls that must not read old data.
func Strong(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "x-consul-consistency-mode", "consistent")
}

// Read implements [storage.Backend]. An id without a group version has the store's.
func (s *Store) Read(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	if consistency == storage.StrongConsistency {
		ctx = Strong(ctx)
	}
	id = proto.CloneOf(id)
	id.Type = s.typ
	answer, err := s.client.Read(ctx, &resourcepb.ReadRequest{Id: id})
	switch {
	case status.Code(err) == codes.NotFound:
		return nil, fmt.Errorf("%w: %w", storage.ErrNotFound, err)
	case Reason(err) == "GROUP_VERSION_MISMATCH": // a view of one group version does not have the resource
		return nil, fmt.Errorf("%w: %w", storage.ErrNotFound, err)
	}
	return answer.GetResource(), err
}

// Reason returns the reason of an error of the service, "" for none.
func Reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.GetReason()
		}
	}
	return ""
}

// errReadOnly is the error of the methods that the store does not have.
var errReadOnly = fmt.Errorf("%w: a store over a client only reads resources and watches", storage.ErrInvalid)

// WriteCAS fails.
func (s *Store) WriteCAS(context.Context, *resourcepb.Resource) (*resourcepb.Resource, error) {
	return nil, errReadOnly
}

// DeleteCAS fails.
func (s *Store) DeleteCAS(context.Context, *resourcepb.ID, string) error { return errReadOnly }

// List fails.
func (s *Store) List(context.Context, storage.ReadConsistency, storage.UnversionedType, *resourcepb.Tenancy, string) ([]*resourcepb.Resource, error) {
	return nil, errReadOnly
}

// OwnerReferences fails.
func (s *Store) OwnerReferences(context.Context, *resourcepb.ID) ([]*resourcepb.ID, error) {
	return nil, errReadOnly
}

// Close does nothing: the client belongs to the caller.
func (s *Store) Close() error { return nil }
