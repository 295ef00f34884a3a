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

// record is the stored state of a lock: its holder and the latest heartbeat. The zero record is a lock that was never held.
type record struct {
	lock, heartbeat *resourcepb.Resource // nil if not stored
	holder          string               // "" if the lock is free
	epoch           int64
	ttl             time.Duration // the holder's
}

// retryPause is the pause after a failed call to the store.
const retryPause = 250 * time.Millisecond

// The payload fields of a lock.
const (
	holderField = "holder"
	epochField  = "epoch"
	ttlField    = "ttl"
)

// read returns the stored state of the lock. Each of the two resources is read linearizably.
func (s *lockStore) read(ctx context.Context) (*record, error) {
	r := &record{}
	var err error
	// Read the heartbeat first: one older than the lock's record can only delay a candidate or fail its transaction.
	if r.heartbeat, err = s.readResource(ctx, heartbeatType); err != nil {
		return nil, err
	}
	r.epoch = epochOf(r.heartbeat) // epochs keep growing even if the lock's record was deleted
	if r.lock, err = s.readResource(ctx, lockType); err != nil || r.lock == nil {
		return r, err
	}
	if r.holder, r.ttl, err = lockHolder(r.lock); err != nil {
		return nil, err
	}
	r.epoch = max(r.epoch, epochOf(r.lock))
	return r, nil
}

// lockHolder returns the holder of a lock, "" for none, and its time to live.
func lockHolder(lock *resourcepb.Resource) (holder string, ttl time.Duration, err error) {
	fields := &structpb.Struct{}
	if err := lock.GetData().UnmarshalTo(fields); err != nil {
		return "", 0, fmt.Errorf("lock %q: cannot decode the record: %w", lock.GetId().GetName(), err)
	}
	ttl, err = time.ParseDuration(fields.GetFields()[ttlField].GetStringValue())
	if err != nil || ttl <= 0 || epochOf(lock) < 1 {
		return "", 0, fmt.Errorf("lock %q: the record has no valid epoch or time to live: %v", lock.GetId().GetName(), fields)
	}
	return fields.GetFields()[holderField].GetStringValue(), ttl, nil
}

// lastEpoch is the largest epoch with a representable successor: the record stores floating-point numbers.
const lastEpoch = 1<<53 - 2

// epochOf returns the epoch in a lock or its heartbeat, 0 if it is missing or out of range.
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

// readResource reads one of the lock's resources, nil if it is not stored.
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

// newLock returns the lock's resource for a holder and an epoch, which replaces the stored one.
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

// newHeartbeat returns the heartbeat of a lock in an epoch, which replaces the stored one.
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
		panic(err) // cannot happen: a struct of these fields always encodes
	}
	return data
}
