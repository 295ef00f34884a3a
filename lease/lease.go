package lease

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The types of the two resources of a lease. The group is one for itself, so that a watch sees nothing else.
var (
	leaseType   = &resourcepb.Type{Group: "lease", GroupVersion: "v1", Kind: "Lease"}
	renewalType = &resourcepb.Type{Group: "lease", GroupVersion: "v1", Kind: "Renewal"}
)

// The fields of a lease's payload beside ttlField, and of a renewal's.
const (
	endedField = "ended" // true if the lease has ended and something is left of it
	uidField   = "lease" // the uid of the lease that was renewed
)

// Lease is a lease that was granted.
type Lease struct {
	// TTL is how long the lease lives without being renewed.
	TTL time.Duration

	res      *resourcepb.Resource
	hasEnded bool
}

// Owner is what a resource that is attached to the lease names as its owner.
func (l *Lease) Owner() *resourcepb.ID { return proto.CloneOf(l.res.GetId()) }

// Alive is an operation for [storage.Transactor]: the transaction fails with [storage.ErrCASFailure] or [storage.ErrWrongUid] if the lease
// has ended. A resource is attached by a transaction that has this operation and writes the resource, with Owner as its owner: so nothing
// is attached to a lease whose end has begun.
func (l *Lease) Alive() storage.Op {
	return storage.Op{Check: proto.CloneOf(l.res.GetId()), Version: l.res.GetVersion()}
}

// leaseOf reads the record of a lease. One of another version is not read: what it means is known to who wrote it.
func leaseOf(res *resourcepb.Resource) (*Lease, error) {
	if version := res.GetId().GetType().GetGroupVersion(); version != leaseType.GroupVersion {
		return nil, fmt.Errorf("lease %q: its record is of version %q", res.GetId().GetName(), version)
	}
	fields := &structpb.Struct{}
	if err := res.GetData().UnmarshalTo(fields); err != nil {
		return nil, fmt.Errorf("lease %q: its record does not decode: %w", res.GetId().GetName(), err)
	}
	l := &Lease{res: res, hasEnded: fields.GetFields()[endedField].GetBoolValue()}
	var err error
	if l.TTL, err = time.ParseDuration(fields.GetFields()[ttlField].GetStringValue()); !l.hasEnded && (err != nil || l.TTL <= 0) {
		return nil, fmt.Errorf("lease %q: its record is malformed: %v", res.GetId().GetName(), fields)
	}
	return l, nil
}

// record returns the record of a lease, to be written over what the lease knows of.
func (l *Lease) record(ended bool) *resourcepb.Resource {
	res := proto.CloneOf(l.res)
	res.Id.Type = proto.CloneOf(leaseType)
	res.Data = payload(map[string]*structpb.Value{
		ttlField:   structpb.NewStringValue(l.TTL.String()),
		endedField: structpb.NewBoolValue(ended),
	})
	return res
}
