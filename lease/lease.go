package lease

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The types of the two resources of a lease. They have a group of their own, so that a watch of the group returns only them.
var (
	leaseType   = &resourcepb.Type{Group: "lease", GroupVersion: "v1", Kind: "Lease"}
	renewalType = &resourcepb.Type{Group: "lease", GroupVersion: "v1", Kind: "Renewal"}
)

// The payload fields of a lease, in addition to ttlField, and of a renewal.
const (
	endedField = "ended" // true once the lease has begun to end
	uidField   = "lease" // the uid of the renewed lease
)

// Lease is a granted lease.
type Lease struct {
	// TTL is how long the lease lives without a renewal.
	TTL time.Duration

	res      *resourcepb.Resource
	hasEnded bool
}

// Owner returns the owner id for resources that are attached to the lease.
func (l *Lease) Owner() *resourcepb.ID { return proto.CloneOf(l.res.GetId()) }

// Alive returns an operation for [storage.Transactor] that fails the transaction with [storage.ErrCASFailure] or [storage.ErrWrongUid] if the
// lease has ended. To attach a resource, commit this operation together with a write of the resource whose owner is Owner. So nothing can be
// attached to a lease that has begun to end.
func (l *Lease) Alive() storage.Op {
	return storage.Op{Check: proto.CloneOf(l.res.GetId()), Version: l.res.GetVersion()}
}

// leaseOf decodes the record of a lease. It rejects records of other versions, because only a program of that version can interpret them.
func leaseOf(res *resourcepb.Resource) (*Lease, error) {
	if version := res.GetId().GetType().GetGroupVersion(); version != leaseType.GroupVersion {
		return nil, fmt.Errorf("lease %q: the record has version %q, this program reads only %q", res.GetId().GetName(), version, leaseType.GroupVersion)
	}
	fields := &structpb.Struct{}
	if err := res.GetData().UnmarshalTo(fields); err != nil {
		return nil, fmt.Errorf("lease %q: cannot decode the record: %w", res.GetId().GetName(), err)
	}
	l := &Lease{res: res, hasEnded: fields.GetFields()[endedField].GetBoolValue()}
	var err error
	if l.TTL, err = time.ParseDuration(fields.GetFields()[ttlField].GetStringValue()); !l.hasEnded && (err != nil || l.TTL <= 0) {
		return nil, fmt.Errorf("lease %q: the record has no valid time to live: %v", res.GetId().GetName(), fields)
	}
	return l, nil
}

// record returns the next record of a lease, which replaces the record that was read.
func (l *Lease) record(ended bool) *resourcepb.Resource {
	res := proto.CloneOf(l.res)
	res.Id.Type = proto.CloneOf(leaseType)
	res.Data = payload(map[string]*structpb.Value{
		ttlField:   structpb.NewStringValue(l.TTL.String()),
		endedField: structpb.NewBoolValue(ended),
	})
	return res
}
