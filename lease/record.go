package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The types of the two resources of a lock.
var (
	lockType      = &resourcepb.Type{Group: "coordination", GroupVersion: "v1", Kind: "Lock"}
	heartbeatType = &resourcepb.Type{Group: "coordination", GroupVersion: "v1", Kind: "Heartbeat"}
)

// lockStore reads and writes the two resources of one lock.
type lockStore struct {
	backend storage.Backend
	tx      storage.Transactor
	tenancy *resourcepb.Tenancy
	name    string
	ttl     time.Duration // for new tenures
}

// record is what is stored of a lock: who holds it, and the newest sign of life. The zero record is that of a lock that nobody ever held.
type record struct {
	lock, heartbeat *resourcepb.Resource // nil where nothing is stored
	holder          string               // "" if the lock is free
	epoch           int64
	ttl             time.Duration // of the holder
}

// retryPause is the pause after a failed call to the store.
const retryPause = 250 * time.Millisecond

// The fields of a lock's payload.
const (
	holderField = "holder"
	epochField  = "epoch"
	ttlField    = "ttl"
)

// read returns what is stored of the lock, linearizably for each of its two resources.
func (s *lockStore) read(ctx context.Context) (*record, error) {
	r := &record{}
	var err error
	// The heartbeat first: one that is older than the lock's record can only make a candidate wait, or its transaction fail.
	if r.heartbeat, err = s.readResource(ctx, heartbeatType); err != nil {
		return nil, err
	}
	r.epoch = epochOf(r.heartbeat) // epochs grow also where somebody deleted the lock's record
	if r.lock, err = s.readResource(ctx, lockType); err != nil || r.lock == nil {
		return r, err
	}
	if r.holder, r.ttl, err = lockHolder(r.lock); err != nil {
		return nil, err
	}
	r.epoch = max(r.epoch, epochOf(r.lock))
	return r, nil
}

// lockHolder returns who holds a lock, "" for nobody, and for how long that one is waited for without a sign of life.
func lockHolder(lock *resourcepb.Resource) (holder string, ttl time.Duration, err error) {
	fields := &structpb.Struct{}
	if err := lock.GetData().UnmarshalTo(fields); err != nil {
		return "", 0, fmt.Errorf("lock %q: its record does not decode: %w", lock.GetId().GetName(), err)
	}
	ttl, err = time.ParseDuration(fields.GetFields()[ttlField].GetStringValue())
	if err != nil || ttl <= 0 || epochOf(lock) < 1 {
		return "", 0, fmt.Errorf("lock %q: its record is malformed: %v", lock.GetId().GetName(), fields)
	}
	return fields.GetFields()[holderField].GetStringValue(), ttl, nil
}

// lastEpoch is the largest epoch after which a record can say the next one: its numbers are floating-point.
const lastEpoch = 1<<53 - 2

// epochOf returns the epoch that a lock or its heartbeat names, 0 if none that a holder can have had.
func epochOf(res *resourcepb.Resource) int64 {
	fields := &structpb.Struct{}
	if res.GetData().UnmarshalTo(fields) != nil {
		return 0
	}
	if n := fields.GetFields()[epochField].GetNumberValue(); n >= 1 && n <= lastEpoch {
		return int64(n)
	}
	return 0
}

// readResource reads readResource resource of the lock, nil if it is not stored.
func (s *lockStore) readResource(ctx context.Context, typ *resourcepb.Type) (*resourcepb.Resource, error) {
	res, err := s.backend.Read(ctx, storage.StrongConsistency, s.id(typ))
	if errors.Is(err, storage.ErrNotFound) {
		return nil, nil
	}
	return res, err
}

func (s *lockStore) id(typ *resourcepb.Type) *resourcepb.ID {
	return &resourcepb.ID{Type: proto.CloneOf(typ), Tenancy: s.tenancy, Name: s.name}
}

// newLock returns the lock's resource for a holder in an epoch, to be written over the stored one.
func (s *lockStore) newLock(stored *resourcepb.Resource, holder string, epoch int64) *resourcepb.Resource {
	res := &resourcepb.Resource{Id: s.id(lockType), Version: stored.GetVersion(), Generation: ulid.Make().String()}
	if res.Id.Uid = stored.GetId().GetUid(); res.Id.Uid == "" {
		res.Id.Uid = ulid.Make().String()
	}
	res.Data = payload(map[string]*structpb.Value{
		holderField: structpb.NewStringValue(holder),
		epochField:  structpb.NewNumberValue(float64(epoch)),
		ttlField:    structpb.NewStringValue(s.ttl.String()),
	})
	return res
}

// newHeartbeat returns the heartbeat of a lock in an epoch, to be written over the stored one.
func (s *lockStore) newHeartbeat(stored *resourcepb.Resource, lock *resourcepb.ID, holder string, epoch int64) *resourcepb.Resource {
	res := &resourcepb.Resource{Id: s.id(heartbeatType), Owner: lock, Version: stored.GetVersion(), Generation: ulid.Make().String()}
	if res.Id.Uid = stored.GetId().GetUid(); res.Id.Uid == "" {
		res.Id.Uid = ulid.Make().String()
	}
	res.Data = payload(map[string]*structpb.Value{
		holderField: structpb.NewStringValue(holder),
		epochField:  structpb.NewNumberValue(float64(epoch)),
	})
	return res
}

func payload(fields map[string]*structpb.Value) *anypb.Any {
	data, err := anypb.New(&structpb.Struct{Fields: fields})
	if err != nil {
		panic(err) // a struct of these fields always encodes
	}
	return data
}
