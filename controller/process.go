package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/lease"
	"github.com/ashlar-dev/storage/resourcepb"
)

// ProcessType is the type of the records of processes that run controllers. Each record has the status of its process, and is deleted when the
// process ends or dies. A process has one if it runs a controller with a lease. Records are in the tenancy of leases, default/default.
var ProcessType = &resourcepb.Type{Group: "coordination", GroupVersion: "v1", Kind: "ControllerProcess"}

// lockTenancy is the tenancy of the leases.
var lockTenancy = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}

// process keeps the record of this process alive, and knows the other live processes.
type process struct {
	backend storage.Backend
	opts    Options
	log     *slog.Logger
	name    string // of the record and of its lease
	status  func() []Status

	mu      sync.Mutex
	members map[string][]string // names of the live processes by controller
	tickCh  chan struct{}       // closed and replaced after each round
}

func newProcess(backend storage.Backend, opts Options, status func() []Status) *process {
	return &process{
		backend: backend, opts: opts, log: opts.Logger, name: "controllers-" + strings.ToLower(ulid.Make().String()), status: status,
		members: map[string][]string{}, tickCh: make(chan struct{}),
	}
}

// run keeps the record alive until ctx ends.
func (p *process) run(ctx context.Context) {
	keeper, err := lease.NewKeeper(p.backend, lockTenancy)
	if err != nil {
		p.log.ErrorContext(ctx, "this process has no record", "error", err)
		return
	}
	defer keeper.Close()
	var session *lease.Lease
	for ctx.Err() == nil {
		if session, err = p.round(ctx, keeper, session); err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "cannot renew the record of this process; retrying", "error", err)
		}
		sleep(ctx, p.opts.LeaseTTL/3)
	}
	if session != nil {
		ctx, cancel := context.WithTimeout(context.Background(), p.opts.LeaseTTL)
		defer cancel()
		_ = keeper.Revoke(ctx, p.name) // otherwise the record ends with its lease
	}
}

// round renews the record of this process and lists the live processes once. It returns the lease of the record, nil if there is none. A process
// that cannot renew its record needs the list all the same, to know its shards.
func (p *process) round(ctx context.Context, keeper *lease.Keeper, session *lease.Lease) (*lease.Lease, error) {
	session, err := p.renewRecord(ctx, keeper, session)
	return session, errors.Join(err, p.listMembers(ctx))
}

// renewRecord renews the lease and updates the record.
func (p *process) renewRecord(ctx context.Context, keeper *lease.Keeper, session *lease.Lease) (*lease.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, p.opts.LeaseTTL)
	defer cancel()
	var err error
	if session != nil {
		if _, err = keeper.Renew(ctx, p.name); errors.Is(err, storage.ErrNotFound) {
			session = nil
		}
	}
	if session == nil {
		session, err = keeper.Grant(ctx, p.name, 2*p.opts.LeaseTTL)
	}
	if err == nil {
		err = p.writeRecord(ctx, session)
	}
	if errors.Is(err, storage.ErrCASFailure) { // the lease has another version: it was repaired, or its store has moved
		if session, err = keeper.Lease(ctx, p.name); err == nil {
			err = p.writeRecord(ctx, session)
		}
	}
	return session, err
}

// writeRecord replaces the record of this process.
func (p *process) writeRecord(ctx context.Context, session *lease.Lease) error {
	encoded, err := json.Marshal(p.status())
	if err != nil {
		return err
	}
	data, err := anypb.New(wrapperspb.Bytes(encoded))
	if err != nil {
		return err
	}
	id := &resourcepb.ID{Type: proto.CloneOf(ProcessType), Tenancy: lockTenancy, Name: p.name, Uid: p.name}
	res := &resourcepb.Resource{Id: id, Owner: session.Owner(), Generation: ulid.Make().String(), Data: data}
	stored, err := p.backend.Read(ctx, storage.StrongConsistency, id)
	if err == nil {
		res.Version = stored.GetVersion()
	} else if !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	tx, ok := storage.As[storage.Transactor](p.backend)
	if !ok {
		return fmt.Errorf("%w: the backend is not a storage.Transactor", storage.ErrInvalid)
	}
	_, err = tx.Commit(ctx, []storage.Op{session.Alive(), {Write: res}})
	return err
}

// listMembers reads the records of all live processes.
func (p *process) listMembers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, p.opts.LeaseTTL)
	defer cancel()
	all, err := p.backend.List(ctx, storage.StrongConsistency, storage.UnversionedTypeFrom(ProcessType), lockTenancy, "")
	if err != nil {
		return err
	}
	members := map[string][]string{}
	for _, res := range all {
		found, err := ProcessStatus(res)
		if err != nil {
			continue // of another version of this package
		}
		for _, s := range found {
			members[s.Controller] = append(members[s.Controller], res.GetId().GetName())
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.members = members
	close(p.tickCh)
	p.tickCh = make(chan struct{})
	return nil
}

// ProcessStatus returns the status in the record of a process.
func ProcessStatus(res *resourcepb.Resource) (all []Status, err error) {
	var data wrapperspb.BytesValue
	if err := res.GetData().UnmarshalTo(&data); err != nil {
		return nil, err
	}
	return all, json.Unmarshal(data.GetValue(), &all)
}

// tick returns a channel that is closed after the next round.
func (p *process) tick() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tickCh
}

// isWantedHolder reports whether this process is the wanted holder of a shard: it has the highest hash of all live processes. known is
// false until this process is one of them.
func (p *process) isWantedHolder(controller string, shard int) (wanted, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	members := p.members[controller]
	if !slices.Contains(members, p.name) {
		return false, false
	}
	weight := func(member string) uint64 {
		h := fnv.New64a()
		_, _ = fmt.Fprintf(h, "%s\x00%s\x00%d", member, controller, shard)
		x := h.Sum64() // FNV mixes its last bytes badly
		x ^= x >> 33
		x *= 0xff51afd7ed558ccd
		return x ^ x>>33
	}
	own := weight(p.name)
	for _, other := range members {
		if w := weight(other); w > own || w == own && other > p.name {
			return false, true
		}
	}
	return true, true
}

// awaitTick waits for the next round or until ctx ends.
func (p *process) awaitTick(ctx context.Context, tick <-chan struct{}) {
	select {
	case <-tick:
	case <-ctx.Done():
	case <-time.After(p.opts.LeaseTTL): // rounds fail while the store is unavailable
	}
}
