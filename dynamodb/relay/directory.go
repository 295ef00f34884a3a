package relay

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// directory is the store in which relays and candidates publish their addresses.
type directory struct {
	open func(ctx context.Context) (storage.Backend, error)

	mu      sync.Mutex
	backend storage.Backend // nil before the first use
	closed  bool
}

// The types of the records. Their names are the numbers of slots: of a relay, its lock.
var (
	relayType     = &resourcepb.Type{Group: "relay", GroupVersion: "v1", Kind: "Relay"}
	candidateType = &resourcepb.Type{Group: "relay", GroupVersion: "v1", Kind: "Candidate"}
	tenancy       = &resourcepb.Tenancy{}
)

// record is the published address of a process.
type record struct {
	slot                             string // its name
	process, address, keyHash, token string

	resource *resourcepb.Resource
}

// store opens the directory when it is needed first.
func (d *directory) store(ctx context.Context) (storage.Backend, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return nil, storage.ErrClosed
	case d.backend != nil:
		return d.backend, nil
	}
	b, err := d.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the directory of relays: %w", err)
	}
	d.backend = noWatchBackend{b, b.(transactor)}
	return d.backend, nil
}

func (d *directory) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.backend != nil {
		_ = d.backend.Close()
	}
}

type transactor interface{ storage.Transactor }

// noWatchBackend is a backend without watches: a watch of the directory would read the stream. Package lease reads the records of a lock instead,
// at the interval of its retries, which WatchList makes longer.
type noWatchBackend struct {
	storage.Backend
	transactor
}

// errNoWatch is returned by noWatchBackend.WatchList.
var errNoWatch = errors.New("the directory of relays has no watches")

// lockPoll is the interval at which a candidate reads a lock.
const lockPoll = time.Second

// WatchList implements storage.Backend.
func (noWatchBackend) WatchList(ctx context.Context, _ storage.UnversionedType, _ *resourcepb.Tenancy, _ string) (storage.Watch, error) {
	select {
	case <-ctx.Done():
	case <-time.After(lockPoll):
	}
	return nil, errNoWatch
}

// list returns the records of a type.
func (d *directory) list(ctx context.Context, typ *resourcepb.Type) ([]*record, error) {
	b, err := d.store(ctx)
	if err != nil {
		return nil, err
	}
	all, err := b.List(ctx, storage.StrongConsistency, storage.UnversionedTypeFrom(typ), tenancy, "")
	if err != nil {
		return nil, err
	}
	var records []*record
	for _, res := range all {
		fields := &structpb.Struct{}
		if res.GetId().GetType().GetGroupVersion() != typ.GetGroupVersion() || res.GetData().UnmarshalTo(fields) != nil {
			continue // of another version of the program
		}
		text := func(name string) string { return fields.GetFields()[name].GetStringValue() }
		records = append(records, &record{
			slot: res.GetId().GetName(), process: text("process"), address: text("address"), keyHash: text("key"), token: text("token"), resource: res,
		})
	}
	return records, nil
}

// publish writes the record of a process, together with other operations.
func (d *directory) publish(ctx context.Context, typ *resourcepb.Type, name string, r record, also ...storage.Op) error {
	b, err := d.store(ctx)
	if err != nil {
		return err
	}
	fields := map[string]*structpb.Value{}
	for key, value := range map[string]string{"process": r.process, "address": r.address, "key": r.keyHash, "token": r.token} {
		fields[key] = structpb.NewStringValue(value)
	}
	data, err := anypb.New(&structpb.Struct{Fields: fields})
	if err != nil {
		return err
	}
	id := &resourcepb.ID{Type: typ, Tenancy: tenancy, Name: name}
	for {
		stored, err := b.Read(ctx, storage.StrongConsistency, id)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
		res := &resourcepb.Resource{
			Id: &resourcepb.ID{Type: typ, Tenancy: tenancy, Name: name, Uid: stored.GetId().GetUid()}, Version: stored.GetVersion(), Data: data,
		}
		if res.Id.Uid == "" {
			res.Id.Uid = ulid.Make().String()
		}
		_, err = b.(storage.Transactor).Commit(ctx, append([]storage.Op{{Write: res}}, also...))
		if failed := (*storage.OpError)(nil); errors.As(err, &failed) && failed.Index == 0 && ctx.Err() == nil {
			continue // another process has written the record meanwhile
		}
		return err
	}
}

// remove deletes a record if it has not changed since it was read.
func (d *directory) remove(ctx context.Context, r *record) error {
	b, err := d.store(ctx)
	if err != nil {
		return err
	}
	return b.DeleteCAS(ctx, r.resource.GetId(), r.resource.GetVersion())
}
