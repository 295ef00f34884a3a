package servicetest

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc"
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
)

// method1 is a method of the service.
type method1[Q, A any] = func(context.Context, Q) (A, error)

func onRead(by func(context.Context, *readReq, *faulty, method1[*readReq, *readRes]) (*readRes, error)) *fault {
	return client(func(f *faulty) {
		around(&f.read, func(ctx context.Context, q *readReq, next method1[*readReq, *readRes]) (*readRes, error) {
			return by(ctx, q, f, next)
		})
	})
}

func onWrite(by func(context.Context, *writeReq, *faulty, method1[*writeReq, *writeRes]) (*writeRes, error)) *fault {
	return client(func(f *faulty) {
		around(&f.write, func(ctx context.Context, q *writeReq, next method1[*writeReq, *writeRes]) (*writeRes, error) {
			return by(ctx, q, f, next)
		})
	})
}

func onStatus(by func(context.Context, *statusReq, *faulty, method1[*statusReq, *statusRes]) (*statusRes, error)) *fault {
	return client(func(f *faulty) {
		around(&f.status, func(ctx context.Context, q *statusReq, next method1[*statusReq, *statusRes]) (*statusRes, error) {
			return by(ctx, q, f, next)
		})
	})
}

func onList(by func(context.Context, *listReq, *faulty, method1[*listReq, *listRes]) (*listRes, error)) *fault {
	return client(func(f *faulty) {
		around(&f.list, func(ctx context.Context, q *listReq, next method1[*listReq, *listRes]) (*listRes, error) {
			return by(ctx, q, f, next)
		})
	})
}

func onOwned(by func(context.Context, *ownedReq, *faulty, method1[*ownedReq, *ownedRes]) (*ownedRes, error)) *fault {
	return client(func(f *faulty) {
		around(&f.owned, func(ctx context.Context, q *ownedReq, next method1[*ownedReq, *ownedRes]) (*ownedRes, error) {
			return by(ctx, q, f, next)
		})
	})
}

func onDelete(by func(context.Context, *deleteReq, *faulty, method1[*deleteReq, *deleteRes]) (*deleteRes, error)) *fault {
	return client(func(f *faulty) {
		around(&f.delete, func(ctx context.Context, q *deleteReq, next method1[*deleteReq, *deleteRes]) (*deleteRes, error) {
			return by(ctx, q, f, next)
		})
	})
}

func onCheck(by func(context.Context, *checkReq, *faulty, method1[*checkReq, *checkRes]) (*checkRes, error)) *fault {
	return client(func(f *faulty) {
		around(&f.validate, func(ctx context.Context, q *checkReq, next method1[*checkReq, *checkRes]) (*checkRes, error) {
			return by(ctx, q, f, next)
		})
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
		around(&f.read, func(ctx context.Context, q *readReq, next method1[*readReq, *readRes]) (*readRes, error) {
			a, err := next(ctx, q)
			return a, again(err)
		})
		around(&f.write, func(ctx context.Context, q *writeReq, next method1[*writeReq, *writeRes]) (*writeRes, error) {
			a, err := next(ctx, q)
			return a, again(err)
		})
		around(&f.delete, func(ctx context.Context, q *deleteReq, next method1[*deleteReq, *deleteRes]) (*deleteRes, error) {
			a, err := next(ctx, q)
			return a, again(err)
		})
		streams := events(func(_ *faulty, ev *event, err error) ([]*event, error) { return []*event{ev}, again(err) })
		f.watch = without(streams.client(&faulty{watch: f.watch}, f.store).WatchList)
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
	return onWrite(func(ctx context.Context, q *writeReq, f *faulty, next method1[*writeReq, *writeRes]) (*writeRes, error) {
		a, err := next(ctx, q)
		if err != nil && strings.Contains(err.Error(), text) {
			res, err := insist(ctx, f.store, q.GetResource())
			return &writeRes{Resource: res}, err
		}
		return a, err
	})
}

// tokenless removes the token of every call, which permits everything.
func tokenless() *fault {
	open := func(ctx context.Context) context.Context { return metadata.NewOutgoingContext(ctx, nil) }
	return client(func(f *faulty) {
		around(&f.list, func(ctx context.Context, q *listReq, next method1[*listReq, *listRes]) (*listRes, error) {
			return next(open(ctx), q)
		})
		around(&f.owned, func(ctx context.Context, q *ownedReq, next method1[*ownedReq, *ownedRes]) (*ownedRes, error) {
			return next(open(ctx), q)
		})
		around(&f.delete, func(ctx context.Context, q *deleteReq, next method1[*deleteReq, *deleteRes]) (*deleteRes, error) {
			return next(open(ctx), q)
		})
		around(&f.listAt, func(ctx context.Context, q *pastReq, next method1[*pastReq, *pastRes]) (*pastRes, error) {
			return next(open(ctx), q)
		})
	})
}

func onListAt(by func(context.Context, *pastReq, *faulty, method1[*pastReq, *pastRes]) (*pastRes, error)) *fault {
	return client(func(f *faulty) {
		around(&f.listAt, func(ctx context.Context, q *pastReq, next method1[*pastReq, *pastRes]) (*pastRes, error) {
			return by(ctx, q, f, next)
		})
	})
}

// changed returns a fault of change streams: spoil replaces each change, or drops it if it returns nil.
func changed(spoil func(*resourcepb.Change) *resourcepb.Change) *fault {
	type stream = grpc.ServerStreamingClient[resourcepb.Change]
	return client(func(f *faulty) {
		around(&f.changes, func(ctx context.Context, q *resourcepb.ChangesRequest, next method1[*resourcepb.ChangesRequest, stream]) (stream, error) {
			s, err := next(ctx, q)
			if err != nil {
				return nil, err
			}
			return faultyChanges{s, spoil}, nil
		})
	})
}

// faultyChanges is a faulty change stream.
type faultyChanges struct {
	grpc.ServerStreamingClient[resourcepb.Change]
	spoil func(*resourcepb.Change) *resourcepb.Change
}

func (s faultyChanges) Recv() (*resourcepb.Change, error) {
	for {
		c, err := s.ServerStreamingClient.Recv()
		if err != nil {
			return nil, err
		}
		if c = s.spoil(c); c != nil {
			return c, nil
		}
	}
}

// selecting returns a fault of WatchStore streams: ask changes the request, and spoil replaces each event, or drops it if it returns
// nil.
func selecting(ask func(*resourcepb.WatchStoreRequest), spoil func(*resourcepb.StoreEvent) *resourcepb.StoreEvent) *fault {
	type stream = grpc.ServerStreamingClient[resourcepb.StoreEvent]
	return client(func(f *faulty) {
		around(&f.selected, func(ctx context.Context, q *resourcepb.WatchStoreRequest, next method1[*resourcepb.WatchStoreRequest, stream]) (stream, error) {
			s, err := next(ctx, but(q, ask))
			if err != nil {
				return nil, err
			}
			return faultySelection{s, spoil}, nil
		})
	})
}

func anything(*resourcepb.WatchStoreRequest) {}

func asItIs(ev *resourcepb.StoreEvent) *resourcepb.StoreEvent { return ev }

// faultySelection is a faulty WatchStore stream.
type faultySelection struct {
	grpc.ServerStreamingClient[resourcepb.StoreEvent]
	spoil func(*resourcepb.StoreEvent) *resourcepb.StoreEvent
}

func (s faultySelection) Recv() (*resourcepb.StoreEvent, error) {
	for {
		ev, err := s.ServerStreamingClient.Recv()
		if err != nil {
			return nil, err
		}
		if ev = s.spoil(ev); ev != nil {
			return ev, nil
		}
	}
}

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
