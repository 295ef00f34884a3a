package servicetest

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// The following servers have one bug each; see defects for the bug and the case that must find it.

// Short names for the requests and responses of the service.
type (
	readReq   = resourcepb.ReadRequest
	readRes   = resourcepb.ReadResponse
	writeReq  = resourcepb.WriteRequest
	writeRes  = resourcepb.WriteResponse
	statusReq = resourcepb.WriteStatusRequest
	statusRes = resourcepb.WriteStatusResponse
	listReq   = resourcepb.ListRequest
	listRes   = resourcepb.ListResponse
	ownedReq  = resourcepb.ListByOwnerRequest
	ownedRes  = resourcepb.ListByOwnerResponse
	deleteReq = resourcepb.DeleteRequest
	deleteRes = resourcepb.DeleteResponse
	checkReq  = resourcepb.MutateAndValidateRequest
	checkRes  = resourcepb.MutateAndValidateResponse
	event     = resourcepb.WatchEvent
	pastReq   = resourcepb.ListAtRequest
	pastRes   = resourcepb.ListAtResponse
	watchReq  = resourcepb.WatchListRequest

	revisionsReq = resourcepb.RevisionsRequest
	revisionsRes = resourcepb.RevisionsResponse
	changesReq   = resourcepb.ChangesRequest
	selectReq    = resourcepb.WatchStoreRequest
)

// handler replaces a method of a faulty client; next is the original.
type handler[Q, A any] = func(ctx context.Context, q Q, f *faulty, next method1[Q, A]) (A, error)

// on returns a fault of one method.
func on[Q, A any](method func(*faulty) *method1[Q, A], by handler[Q, A]) *fault {
	return client(func(f *faulty) {
		around(method(f), func(ctx context.Context, q Q, next method1[Q, A]) (A, error) { return by(ctx, q, f, next) })
	})
}

// The methods of a faulty client.
func readCalls(f *faulty) *method1[*readReq, *readRes]        { return &f.read }
func writeCalls(f *faulty) *method1[*writeReq, *writeRes]     { return &f.write }
func statusCalls(f *faulty) *method1[*statusReq, *statusRes]  { return &f.status }
func listCalls(f *faulty) *method1[*listReq, *listRes]        { return &f.list }
func ownedCalls(f *faulty) *method1[*ownedReq, *ownedRes]     { return &f.owned }
func deleteCalls(f *faulty) *method1[*deleteReq, *deleteRes]  { return &f.delete }
func checkCalls(f *faulty) *method1[*checkReq, *checkRes]     { return &f.validate }
func pastCalls(f *faulty) *method1[*pastReq, *pastRes]        { return &f.listAt }
func watchCalls(f *faulty) *method1[*watchReq, stream[event]] { return &f.watch }

// asks returns a fault that changes the requests of a method.
func asks[Q proto.Message, A any](method func(*faulty) *method1[Q, A], change func(q Q)) *fault {
	return on(method, func(ctx context.Context, q Q, _ *faulty, next method1[Q, A]) (A, error) {
		return next(ctx, but(q, change))
	})
}

// answers returns a fault that changes the answers of a method.
func answers[Q, A any](method func(*faulty) *method1[Q, A], change func(q Q, a A)) *fault {
	return on(method, func(ctx context.Context, q Q, _ *faulty, next method1[Q, A]) (A, error) {
		a, err := next(ctx, q)
		if err == nil {
			change(q, a)
		}
		return a, err
	})
}

// recoded returns a fault that replaces one error code of Read, Write, Delete and streams by another.
func recoded(from, to codes.Code, text string) *fault {
	again := func(err error) error {
		if status.Code(err) != from {
			return err
		}
		if text == "" {
			text = status.Convert(err).Message()
		}
		return status.Error(to, text)
	}
	return client(func(f *faulty) {
		recode(&f.read, again)
		recode(&f.write, again)
		recode(&f.delete, again)
		spoiled(&f.watch, func(ev *event, err error) ([]*event, error) { return []*event{ev}, again(err) })
	})
}

func recode[Q, A any](f *method1[Q, A], again func(error) error) {
	around(f, func(ctx context.Context, q Q, next method1[Q, A]) (A, error) {
		a, err := next(ctx, q)
		return a, again(err)
	})
}

// insist writes a resource to the store unconditionally, like a server that lacks a check.
func insist(ctx context.Context, b storage.Backend, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	res = clone(res)
	if res.GetId().GetTenancy().GetPartition() == "" {
		res.Id.Tenancy = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
	}
	bare := but(res.GetId(), func(id *resourcepb.ID) { id.Uid = "" })
	res.Version, res.Id.Uid = "", ulid.Make().String()
	stored, err := b.Read(ctx, strong, bare)
	if wrong := (storage.GroupVersionMismatchError{}); errors.As(err, &wrong) {
		stored, err = wrong.Stored, nil
	}
	if err == nil {
		res.Version, res.Id.Uid = stored.GetVersion(), stored.GetId().GetUid()
	}
	return b.WriteCAS(ctx, res)
}

// unless performs writes that the server rejects with an error containing a text.
func unless(text string) *fault {
	return on(writeCalls, func(ctx context.Context, q *writeReq, f *faulty, next method1[*writeReq, *writeRes]) (*writeRes, error) {
		a, err := next(ctx, q)
		if err != nil && strings.Contains(err.Error(), text) {
			res, err := insist(ctx, f.store, q.GetResource())
			return &writeRes{Resource: res}, err
		}
		return a, err
	})
}

// tokenless removes the token of lists and deletions, which permits everything.
func tokenless() *fault {
	return client(func(f *faulty) {
		withoutToken(&f.list)
		withoutToken(&f.owned)
		withoutToken(&f.delete)
		withoutToken(&f.listAt)
	})
}

func withoutToken[Q, A any](f *method1[Q, A]) {
	around(f, func(ctx context.Context, q Q, next method1[Q, A]) (A, error) {
		return next(metadata.NewOutgoingContext(ctx, nil), q)
	})
}

// changed returns a fault of change streams: spoil replaces each change, or drops it if it returns nil.
func changed(spoil func(*resourcepb.Change) *resourcepb.Change) *fault {
	return client(func(f *faulty) { spoiled(&f.changes, unlessNil(spoil)) })
}

// selecting returns a fault of WatchStore streams: ask changes the request, and spoil replaces each event, or drops it if it returns
// nil.
func selecting(ask func(*selectReq), spoil func(*resourcepb.StoreEvent) *resourcepb.StoreEvent) *fault {
	return client(func(f *faulty) {
		next := f.selected
		f.selected = func(ctx context.Context, q *selectReq) (stream[resourcepb.StoreEvent], error) {
			return next(ctx, but(q, ask))
		}
		spoiled(&f.selected, unlessNil(spoil))
	})
}

func anything(*resourcepb.WatchStoreRequest) {}

func asItIs(ev *resourcepb.StoreEvent) *resourcepb.StoreEvent { return ev }

// lagging is a backend whose eventual reads return the state before the last read.
func lagging() *fault {
	return &fault{backend: backend(func(b *shaky) {
		var mu sync.Mutex
		seen := map[string]*resourcepb.Resource{}
		next := b.read
		b.read = func(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
			res, err := next(ctx, c, id)
			mu.Lock()
			defer mu.Unlock()
			before := seen[id.GetName()]
			if err == nil {
				seen[id.GetName()] = clone(res)
			}
			if before != nil && err == nil {
				return clone(before), nil
			}
			return res, err
		}
	})}
}

// lastWins is a backend that overwrites unconditionally.
func lastWins() *fault {
	return &fault{backend: backend(func(b *shaky) {
		b.write = func(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
			dawdle()
			for {
				stored, err := b.Backend.WriteCAS(ctx, res)
				if !errors.Is(err, storage.ErrCASFailure) && !errors.Is(err, storage.ErrWrongUid) {
					return stored, err
				}
				bare := but(res.GetId(), func(id *resourcepb.ID) { id.Uid = "" })
				now, err := b.Backend.Read(ctx, strong, bare)
				if errors.Is(err, storage.ErrNotFound) { // another writer has just deleted it to write its own
					res = but(res, func(r *resourcepb.Resource) { r.Version = "" })
					continue
				}
				if err != nil {
					return nil, err
				}
				if now.GetId().GetUid() != res.GetId().GetUid() {
					if err := b.DeleteCAS(ctx, now.GetId(), now.GetVersion()); err != nil && !errors.Is(err, storage.ErrCASFailure) {
						return nil, err
					}
					continue
				}
				res = but(res, func(r *resourcepb.Resource) { r.Version = now.GetVersion() })
			}
		}
	})}
}

// conflicting is a backend whose conflicts are unclassified errors.
func conflicting() *fault {
	return &fault{backend: backend(func(b *shaky) {
		next := b.write
		b.write = func(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
			dawdle()
			stored, err := next(ctx, res)
			if errors.Is(err, storage.ErrCASFailure) {
				err = errors.New("a conflict")
			}
			return stored, err
		}
	})}
}

// stones replaces a backend's writes of tombstones by the result of spoil, unless that is nil.
func stones(spoil func(stone, owner *resourcepb.ID) *resourcepb.ID) func(storage.Backend) storage.Backend {
	return backend(func(b *shaky) {
		next := b.write
		b.write = func(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
			if res.GetId().GetType().GetKind() != service.TombstoneType.GetKind() {
				return next(ctx, res)
			}
			owner, err := service.Tombstone(res)
			if err != nil {
				return nil, err
			}
			id := spoil(clone(res.GetId()), owner)
			if id == nil {
				return res, nil
			}
			return next(ctx, but(res, func(r *resourcepb.Resource) { r.Id = id }))
		}
	})
}

// reaped is a fault of the reaper's backend.
func reaped(spoil func(b *shaky)) *fault { return &fault{reaped: backend(spoil)} }

// references changes the children that a reaper sees.
func references(by func(ctx context.Context, b storage.Backend, owner *resourcepb.ID, ids []*resourcepb.ID) []*resourcepb.ID) *fault {
	return reaped(func(b *shaky) {
		b.owners = func(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
			ids, err := b.Backend.OwnerReferences(ctx, id)
			return by(ctx, b.Backend, id, ids), err
		}
	})
}

// hooks is a fault of the hooks of a type.
func hooks(of *resourcepb.Type, spoil func(*registry.Type)) *fault {
	return &fault{types: func(types []registry.Type) []registry.Type {
		for i := range types {
			if types[i].Type == of {
				spoil(&types[i])
			}
		}
		return types
	}}
}

// noMarks is a Tenancies without marks: no unit is marked for deletion.
type noMarks struct{ units }

func (noMarks) DeletionPending(context.Context, *resourcepb.Tenancy) (bool, error) {
	return false, nil
}

// sameData keeps the generation in a write that does not change the data.
func sameData(ctx context.Context, q *writeReq, f *faulty, next method1[*writeReq, *writeRes]) (*writeRes, error) {
	if now, err := f.read(ctx, &readReq{Id: q.GetResource().GetId()}); err == nil && proto.Equal(now.GetResource().GetData(),
		q.GetResource().GetData()) {
		return &writeRes{Resource: now.GetResource()}, nil
	}
	return next(ctx, q)
}

// known drops the unknown fields of a written payload.
func known(ctx context.Context, q *writeReq, _ *faulty, next method1[*writeReq, *writeRes]) (*writeRes, error) {
	q = clone(q)
	var data wrapperspb.StringValue
	if q.GetResource().GetData() != nil && (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(q.Resource.Data.Value, &data) == nil {
		q.Resource.Data.Value, _ = proto.Marshal(&data)
	}
	return next(ctx, q)
}

// every drops each nth upsert of streams.
func every(n int) *fault {
	var mu sync.Mutex
	seen := 0
	return events(func(_ *faulty, ev *event, err error) ([]*event, error) {
		mu.Lock()
		defer mu.Unlock()
		if ev.GetUpsert() != nil {
			if seen++; seen%n == 0 {
				return nil, err
			}
		}
		return []*event{ev}, err
	})
}

// hidden reports whether an event is the deletion of a resource that left the stream's view.
func hidden(ev *event) bool {
	return ev.GetDelete() != nil && ev.GetDelete().GetResource().GetVersion() == ""
}

// drop is a fault of streams that drops events.
func drop(which func(*event) bool) *fault {
	return events(func(_ *faulty, ev *event, err error) ([]*event, error) {
		if err == nil && which(ev) {
			return nil, nil
		}
		return []*event{ev}, err
	})
}

// twice is a fault of streams that repeats events.
func twice(which func(*event) bool) *fault {
	return events(func(_ *faulty, ev *event, err error) ([]*event, error) {
		if err == nil && which(ev) {
			return []*event{ev, clone(ev)}, nil
		}
		return []*event{ev}, err
	})
}
