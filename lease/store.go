package lease

import (
	"context"
	"errors"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// leaseStore reads and writes the records of the leases of one tenancy.
type leaseStore struct {
	backend storage.Backend
	tx      storage.Transactor
	tenancy *resourcepb.Tenancy
}

// readRecord reads the record of a lease or its renewal, of any version.
func (s *leaseStore) readRecord(ctx context.Context, typ *resourcepb.Type, name string) (*resourcepb.Resource, error) {
	res, err := s.backend.Read(ctx, storage.StrongConsistency, s.id(typ, name))
	if mismatch := (storage.GroupVersionMismatchError{}); errors.As(err, &mismatch) {
		return mismatch.Stored, nil
	}
	return res, err
}

func (s *leaseStore) id(typ *resourcepb.Type, name string) *resourcepb.ID {
	return &resourcepb.ID{Type: proto.CloneOf(typ), Tenancy: s.tenancy, Name: name}
}

// renewal returns the next renewal of a lease, which replaces the stored one.
func (s *leaseStore) renewal(stored *resourcepb.Resource, l *Lease) *resourcepb.Resource {
	res := &resourcepb.Resource{
		Id: s.id(renewalType, l.res.GetId().GetName()), Version: stored.GetVersion(), Generation: ulid.Make().String(),
		Data: payload(map[string]*structpb.Value{uidField: structpb.NewStringValue(l.res.GetId().GetUid())}),
	}
	if res.Id.Uid = stored.GetId().GetUid(); res.Id.Uid == "" {
		res.Id.Uid = ulid.Make().String()
	}
	return res
}

// renewedUid returns the uid of the lease that a renewal names, "" for none.
func renewedUid(renewal *resourcepb.Resource) string {
	fields := &structpb.Struct{}
	if renewal.GetData().UnmarshalTo(fields) != nil {
		return ""
	}
	return fields.GetFields()[uidField].GetStringValue()
}
