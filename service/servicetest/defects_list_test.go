package servicetest

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/oklog/ulid/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

var defects = []defect{
	{"texts of one's own", "Read/Table", "got the text", recoded(codes.NotFound, codes.NotFound, "there is no such resource")},
	{"absence is internal", "Read/Table", "expected NotFound", recoded(codes.NotFound, codes.Internal, "")},
	{"conflicts are internal", "Write/UpdateRefused", "expected Aborted", recoded(codes.Aborted, codes.Internal, "")},
	{"hooks are quoted", "Access/Callers", "got the text", recoded(codes.Internal, codes.Internal, "authorize: the policy is unavailable")},
	{"names are not checked", "Requests/IDs", "no error",
		on(deleteCalls, func(ctx context.Context, q *deleteReq, _ *faulty, next method1[*deleteReq, *deleteRes]) (*deleteRes, error) {
			a, err := next(ctx, q)
			if err != nil && strings.Contains(err.Error(), "name invalid") {
				return &deleteRes{}, nil
			}
			return a, err
		})},
	{"statuses forget the scope", "Requests/Scopes", "expected InvalidArgument",
		asks(statusCalls, func(q *statusReq) {
			if q.GetId().GetType().GetKind() == "Planet" {
				q.Id.Tenancy = nil
			}
		})},
	{"prefixes in any case", "Requests/Filters", "no error", asks(listCalls, func(q *listReq) { q.NamePrefix = strings.ToLower(q.GetNamePrefix()) })},
	{"existence before authorization", "Requests/OrderOfChecks", "expected (Unauthenticated|PermissionDenied)",
		on(readCalls, func(ctx context.Context, q *readReq, _ *faulty, next method1[*readReq, *readRes]) (*readRes, error) {
			if q.GetId().GetTenancy().GetPartition() == missing && q.GetId().GetType().GetKind() == "Thing" {
				return nil, status.Error(codes.NotFound, "partition not found: missing")
			}
			return next(ctx, q)
		})},
	{"defaults are written into requests", "Requests/Defaults", "the request is changed",
		answers(writeCalls, func(q *writeReq, a *writeRes) { q.Resource.Id.Tenancy = a.GetResource().GetId().GetTenancy() })},
	{"answers are shared", "Requests/AnswersBelongToTheCaller", "modif", client(func(f *faulty) {
		kept := map[string]*readRes{}
		var mu sync.Mutex
		around(&f.read, func(ctx context.Context, q *readReq, next method1[*readReq, *readRes]) (*readRes, error) {
			mu.Lock()
			defer mu.Unlock()
			if a := kept[q.GetId().GetName()]; a != nil {
				return a, nil
			}
			a, err := next(ctx, q)
			kept[q.GetId().GetName()] = a
			return a, err
		})
	})},
	{"consistent reads lag", "Read/Consistent", "consistent Read", lagging()},
	{"eventual reads lag", "Watch/ReadableAtOnce", "Read after the event", lagging()},
	{"generations are the caller's", "Write/Create", "^Read",
		answers(writeCalls, func(q *writeReq, a *writeRes) {
			if g := q.GetResource().GetGeneration(); g != "" {
				a.Resource.Generation = g
			}
		})},
	{"metadata is merged", "Write/Update", "Write, by name",
		on(writeCalls, func(ctx context.Context, q *writeReq, f *faulty, next method1[*writeReq, *writeRes]) (*writeRes, error) {
			if now, err := f.read(ctx, &readReq{Id: q.GetResource().GetId()}); err == nil {
				q = clone(q)
				for key, value := range now.GetResource().GetMetadata() {
					q.Resource = with(q.Resource, key, value)
				}
			}
			return next(ctx, q)
		})},
	{"Write writes statuses", "Write/CreateRefused", "a status: no error", unless("resource.status")},
	{"times to live stay", "Write/TTL", "after a Write without one",
		on(writeCalls, func(ctx context.Context, q *writeReq, f *faulty, next method1[*writeReq, *writeRes]) (*writeRes, error) {
			if now, err := f.read(ctx, &readReq{Id: q.GetResource().GetId()}); err == nil && q.GetResource().GetTtl() == nil {
				q = clone(q)
				q.Resource.Ttl = now.GetResource().GetTtl()
			}
			return next(ctx, q)
		})},
	{"creations update", "Write/CreateOnly", "no error", asks(writeCalls, func(q *writeReq) { q.Create = false })},
	{"versions are not compared", "Write/UpdateRefused", "no error", asks(writeCalls, func(q *writeReq) { q.Resource.Version = "" })},
	{"payloads of any type", "Write/Payload", "no error", unless("resource.data")},
	{"owners are not read", "Write/Owner", "the owner, by name",
		asks(writeCalls, func(q *writeReq) {
			if owner := q.GetResource().GetOwner(); owner != nil && owner.GetUid() == "" {
				q.Resource.Owner.Uid = stale
			}
		})},
	{"no tenancy is marked", "Write/MarkedTenancy", "no error", &fault{options: func(o *service.Options) { o.Tenancies = noMarks{} }}},
	{"MutateAndValidate writes", "Write/MutateAndValidate", "changes the store",
		on(checkCalls, func(ctx context.Context, q *checkReq, f *faulty, next method1[*checkReq, *checkRes]) (*checkRes, error) {
			a, err := next(ctx, q)
			if err == nil {
				_, err = f.write(ctx, &writeReq{Resource: q.GetResource()})
			}
			return a, err
		})},
	{"conditions pile up", "WriteStatus/Replaces", "WriteStatus|as a whole",
		on(statusCalls, func(ctx context.Context, q *statusReq, f *faulty, next method1[*statusReq, *statusRes]) (*statusRes, error) {
			if now, err := f.read(ctx, &readReq{Id: q.GetId()}); err == nil {
				q = but(q, func(q *statusReq) {
					q.Status.Conditions = append(now.GetResource().GetStatus()[q.GetKey()].GetConditions(), q.Status.Conditions...)
				})
			}
			return next(ctx, q)
		})},
	{"statuses of any incarnation", "WriteStatus/Refused", "no uid: no error",
		on(statusCalls, func(ctx context.Context, q *statusReq, f *faulty, next method1[*statusReq, *statusRes]) (*statusRes, error) {
			if now, err := f.read(ctx, &readReq{Id: q.GetId()}); err == nil {
				q = but(q, func(q *statusReq) { q.Id.Uid = now.GetResource().GetId().GetUid() })
			}
			return next(ctx, q)
		})},
	{"no wildcard for namespaces", "List/Filters", "shows",
		asks(listCalls, func(q *listReq) {
			if q.GetTenancy().GetNamespace() == storage.Wildcard {
				q.Tenancy.Namespace = ""
			}
		})},
	{"lists show every version", "List/OtherVersions", "shows", everyVersion},
	{"pages skip one", "List/Pages", "shows", answers(listCalls, func(q *listReq, a *listRes) { skipOne(q.GetContinue(), &a.Resources) })},
	{"authorizers for each list twice", "List/OneAuthorizerPerTenancy", "asks 2 times",
		on(listCalls, func(ctx context.Context, q *listReq, _ *faulty, next method1[*listReq, *listRes]) (*listRes, error) {
			if _, err := next(ctx, q); err != nil {
				return nil, err
			}
			return next(ctx, q)
		})},
	{"callers are not checked", "List/Access", "shows", tokenless()},
	{"callers are not checked", "ListByOwner/Access", "shows", tokenless()},
	{"callers are not checked", "Access/Callers", "no error", tokenless()},
	{"owners by key", "ListByOwner/Table", "another incarnation",
		on(ownedCalls, func(ctx context.Context, q *ownedReq, f *faulty, next method1[*ownedReq, *ownedRes]) (*ownedRes, error) {
			if id := q.GetOwner(); id.GetUid() == stale {
				if now, err := f.read(ctx, &readReq{Id: but(id, func(id *resourcepb.ID) { id.Uid = "" })}); err == nil {
					q = but(q, func(q *ownedReq) { q.Owner = now.GetResource().GetId() })
				}
			}
			return next(ctx, q)
		})},
	{"pages of children skip one", "ListByOwner/Pages", "shows", answers(ownedCalls, func(q *ownedReq, a *ownedRes) { skipOne(q.GetContinue(), &a.Resources) })},
	{"deletions of absent resources fail", "Delete/Table", "Delete of an absent resource",
		on(deleteCalls, func(ctx context.Context, q *deleteReq, f *faulty, next method1[*deleteReq, *deleteRes]) (*deleteRes, error) {
			if _, err := f.read(ctx, &readReq{Id: q.GetId()}); status.Code(err) == codes.NotFound {
				return nil, err
			}
			return next(ctx, q)
		})},
	{"no tombstones", "Delete/Table", "leaves 0 tombstones", &fault{backend: stones(func(_, _ *resourcepb.ID) *resourcepb.ID { return nil })}},
	{"no version without a uid", "Delete/WrongVersion", "no error",
		asks(deleteCalls, func(q *deleteReq) {
			if q.GetId().GetUid() == "" {
				q.Version = ""
			}
		})},
	{"the tombstone comes first", "Delete/WrongVersion", "changes the store", early},
	{"the tombstone comes first", "Cascade/FailedDelete", "a failed deletion leaves", early},
	{"deletions are validated", "Delete/RejectedByHooks", "a thing must be better",
		on(deleteCalls, func(ctx context.Context, q *deleteReq, f *faulty, next method1[*deleteReq, *deleteRes]) (*deleteRes, error) {
			if now, err := f.read(ctx, &readReq{Id: q.GetId()}); err == nil {
				if _, err := f.validate(ctx, &checkReq{Resource: now.GetResource()}); err != nil {
					return nil, err
				}
			}
			return next(ctx, q)
		})},
	{"validated, then completed", "Access/HookOrder", "asks", hooks(thing, func(t *registry.Type) {
		mutate, validate := t.Mutate, t.Validate
		t.Mutate = func(res *resourcepb.Resource) error { return errors.Join(validate(res), mutate(res)) }
		t.Validate = nil
	})},
	{"denied writes leave a trace", "Access/DeniedWritesLeaveNoTrace", "changes the store",
		on(writeCalls, func(ctx context.Context, q *writeReq, f *faulty, next method1[*writeReq, *writeRes]) (*writeRes, error) {
			a, err := next(ctx, q)
			if status.Code(err) == codes.PermissionDenied {
				if _, err := insist(ctx, f.store, q.GetResource()); err != nil {
					return nil, err
				}
			}
			return a, err
		})},
	{"undecided hooks allow", "Access/ReadNeedsResource", "Read by another caller", hooks(secret, func(t *registry.Type) {
		mayRead := t.MayRead
		t.MayRead = func(c registry.Caller, id *resourcepb.ID, res *resourcepb.Resource) error {
			if err := mayRead(c, id, res); !errors.Is(err, registry.ErrNeedResource) {
				return err
			}
			return nil
		}
	})},
	{"owners change", "Identity/UidAndOwnerStay", "another owner: no error", unless("owner cannot be changed")},
	{"WriteStatus changes the generation", "Identity/Generation", "WriteStatus changes",
		answers(statusCalls, func(_ *statusReq, a *statusRes) { a.Resource.Generation = ulid.Make().String() })},
	{"no change, no generation", "Identity/Generation", "a generation it had before", on(writeCalls, sameData)},
	{"a stale uid creates", "Identity/StaleUid", "Write by the uid: no error", unless("the given uid")},
	{"the type stays the older one", "Identity/GroupVersion", "newer version", &fault{backend: backend(func(b *shaky) {
		next := b.write
		b.write = func(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
			return next(ctx, but(res, func(r *resourcepb.Resource) { r.Id.Type.GroupVersion = "v1" }))
		}
	})}},
	{"leaving resources are not deleted", "Identity/GroupVersion", "no event", drop(hidden)},
	{"leaving resources are deleted twice", "Identity/GroupVersion", "event", twice(hidden)},
	{"leaving resources are not deleted", "Views/LeavingByAccess", "event", drop(hidden)},
	{"leaving resources are not deleted", "Views/AfterACursor", "event", drop(hidden)},
	{"leaving resources are shown", "Views/LeavingByAccess", "discloses hidden state",
		events(func(f *faulty, ev *event, err error) ([]*event, error) {
			if err == nil && hidden(ev) {
				id := but(ev.GetDelete().GetResource().GetId(), func(id *resourcepb.ID) { id.Uid = "" })
				if now, err := f.store.Read(context.Background(), strong, id); err == nil {
					ev = but(ev, func(ev *event) { ev.GetDelete().Resource = now })
				}
			}
			return []*event{ev}, err
		})},
	{"the last write wins", "Contention/StatusesBesideStatuses", "is lost", lastWins()},
	{"the last write wins", "Contention/WritesBesideStatuses", "is lost", lastWins()},
	{"the last write wins", "Contention/VersionedWrites", "expected 1", lastWins()},
	{"the last write wins", "Contention/OneCreates", "two callers created", lastWins()},
	{"conflicts are of no kind", "Contention/BlanketWrites", "expected success or Aborted", conflicting()},
	{"marked resources change", "Marks/Forbidden", "no error", unless("finalizer")},
	{"the last finalizer is only removed", "Marks/LastFinalizerDeletes", "should be the deletion",
		on(writeCalls, func(ctx context.Context, q *writeReq, f *faulty, next method1[*writeReq, *writeRes]) (*writeRes, error) {
			if m := q.GetResource().GetMetadata(); m[stamp] != "" && strings.TrimSpace(m[finalizers]) == "" {
				res, err := insist(ctx, f.store, q.GetResource())
				return &writeRes{Resource: res}, err
			}
			return next(ctx, q)
		})},
	{"any text is a time", "Marks/MarkedByWrite", "no error", unless("RFC 3339")},
	{"marked resources are never deleted", "Marks/NoFinalizers", "cannot be deleted",
		on(deleteCalls, func(ctx context.Context, q *deleteReq, f *faulty, next method1[*deleteReq, *deleteRes]) (*deleteRes, error) {
			if now, err := f.read(ctx, &readReq{Id: q.GetId()}); err == nil && now.GetResource().GetMetadata()[stamp] != "" {
				return &deleteRes{}, nil
			}
			return next(ctx, q)
		})},
	{"tombstones are written", "Tombstones/Unwritable", "no error", unless("written by the service")},
	{"tombstones of other versions are written", "Tombstones/UnwritableInOpenRegistries", "no error", unless("internal.v2.Tombstone")},
	{"tombstones have long names", "Tombstones/Form", "Read of", &fault{backend: stones(func(stone, owner *resourcepb.ID) *resourcepb.ID {
		stone.Name = "tombstone-" + owner.GetName() + "-" + strings.ToLower(owner.GetUid())
		return stone
	})}},
	{"long names have no tombstones", "Cascade/LongestNames", "shows|not so",
		&fault{backend: stones(func(stone, owner *resourcepb.ID) *resourcepb.ID {
			if len(owner.GetName()) > 26 {
				return nil
			}
			return stone
		})}},
	{"children leave no tombstones", "Cascade/ThreeLevels", "the store shows",
		&fault{reaped: stones(func(_, _ *resourcepb.ID) *resourcepb.ID { return nil })}},
	{"the reaper believes tombstones", "Cascade/FailedDelete", "its owner never was|not so", reaped(func(b *shaky) {
		next := b.read
		b.read = func(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
			if id.GetName() == "owner" {
				_, _ = next(ctx, c, id)
				return nil, storage.ErrNotFound
			}
			return next(ctx, c, id)
		}
	})},
	{"the reaper forgets finalizers", "Cascade/Finalizers", "not so|Read of", reaped(func(b *shaky) {
		next := b.read
		b.read = func(ctx context.Context, c storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
			res, err := next(ctx, c, id)
			if err == nil {
				res = but(res, func(r *resourcepb.Resource) { delete(r.Metadata, finalizers) })
			}
			return res, err
		}
	})},
	{"the reaper stays in its scope", "Cascade/EveryScope", "the store shows",
		references(func(_ context.Context, _ storage.Backend, owner *resourcepb.ID, ids []*resourcepb.ID) []*resourcepb.ID {
			var same []*resourcepb.ID
			for _, id := range ids {
				if (id.GetTenancy().GetNamespace() == "") == (owner.GetTenancy().GetNamespace() == "") {
					same = append(same, id)
				}
			}
			return same
		})},
	{"dropped event", "Watch/SnapshotThenChanges", "event|snapshot", every(4)},
	{"dropped event", "Watch/EveryVersionUnderLoad", "should be the first|no event", every(7)},
	{"two ends of a snapshot", "Watch/SnapshotThenChanges", "event", twice(func(ev *event) bool { return ev.GetEndOfSnapshot() != nil })},
	{"no end of a snapshot", "Watch/SnapshotThenChanges", "no event", drop(func(ev *event) bool { return ev.GetEndOfSnapshot() != nil })},
	{"repeated deletion", "Watch/SnapshotThenChanges", "event", twice(func(ev *event) bool { return ev.GetDelete() != nil })},
	{"a watch that ended is internal", "Watch/Restored", "expected Aborted", recoded(codes.Aborted, codes.Internal, "")},
	{"cursors before their event", "Watch/Cursors", "after cursor|after a cursor|end of the snapshot", lateCursors()},
	{"before is now", "Watch/Before", "the state before",
		events(func(_ *faulty, ev *event, err error) ([]*event, error) {
			if err == nil && ev.GetBefore() != nil {
				ev = but(ev, func(ev *event) { ev.Before = ev.GetUpsert().GetResource() })
			}
			return []*event{ev}, err
		})},
	{"no bookmarks", "Watch/Bookmarks", "no event", drop(func(ev *event) bool { return ev.GetBookmark() != nil })},
	{"the future is the present", "History/Refused", "no error", presentInstead},
	{"compacted revisions show the present", "History/Forgotten", "no error", presentInstead},
	{"callers are not checked", "History/Callers", "no error", tokenless()},
	{"the past is the present", "History/AsItWas", "the past at revision",
		asks(pastCalls, func(q *pastReq) {
			if q.GetContinue() == "" {
				q.Revision = 0
			}
		})},
	{"pages of the past skip one", "History/AsItWas", "the past at revision",
		answers(pastCalls, func(q *pastReq, a *pastRes) { skipOne(q.GetContinue(), &a.Records) })},
	{"no state before", "History/Changes", "the state before", changed(func(c *resourcepb.Change) *resourcepb.Change {
		return but(c, func(c *resourcepb.Change) { c.Before = nil })
	})},
	{"deletions are not changes", "History/Changes", "shows 3 changes", withoutDeletions},
	{"the last revision is ignored", "History/ConcurrentChanges", "up to revision", client(func(f *faulty) {
		next := f.changes
		f.changes = func(ctx context.Context, q *changesReq) (stream[resourcepb.Change], error) {
			return next(ctx, but(q, func(q *changesReq) { q.Until = 0 }))
		}
	})},
	{"callers are not checked", "History/Access", "shows", tokenless()},
	{"historical pages disclose hidden resources", "History/Access", "a page is empty",
		on(pastCalls, func(ctx context.Context, q *pastReq, _ *faulty, next method1[*pastReq, *pastRes]) (*pastRes, error) {
			full, err := next(metadata.NewOutgoingContext(ctx, nil), q)
			if err != nil {
				return nil, err
			}
			a, err := next(ctx, q)
			if err == nil && a.GetContinue() == "" {
				a.Continue = full.GetContinue()
			}
			return a, err
		})},
	{"leaving resources are not deleted", "History/Leaving", "shows 2 changes", withoutDeletions},
	{"requests are not checked", "Selection/Refused", "no error", selecting(func(q *resourcepb.WatchStoreRequest) {
		q.Entries, q.Snapshot = []*resourcepb.WatchEntry{entry(thing, nil)}, q.Cursor == ""
	}, asItIs)},
	{"no state before", "Selection/Actions", "event 1 is", selecting(anything, func(ev *resourcepb.StoreEvent) *resourcepb.StoreEvent {
		return but(ev, func(ev *resourcepb.StoreEvent) { ev.Before = nil })
	})},
	{"actions are ignored", "Selection/Actions", "deletions only", selecting(func(q *resourcepb.WatchStoreRequest) {
		for _, e := range q.Entries {
			e.Actions = nil
		}
	}, asItIs)},
	{"selectors are ignored", "Selection/Selectors", "a name: event", selecting(func(q *resourcepb.WatchStoreRequest) {
		for _, e := range q.Entries {
			e.Selector = nil
		}
	}, asItIs)},
	{"selected changes begin anew", "Selection/Resume", "after a cursor: event|stream ended", selecting(func(q *resourcepb.WatchStoreRequest) {
		if q.Cursor != "" {
			q.Cursor, q.Snapshot = "", true
		}
	}, asItIs)},
	{"callers are not checked", "Selection/Access", "enters and leaves the view", client(func(f *faulty) { withoutToken(&f.selected) })},
	{"any version is the oldest", "Wildcards/Refused", "no error", asks(writeCalls, func(q *writeReq) { oldest(q.GetResource().GetId().GetType()) })},
	{"any version is the oldest", "Wildcards/Read", "not with \"v1\"",
		on(readCalls, func(ctx context.Context, q *readReq, _ *faulty, next method1[*readReq, *readRes]) (*readRes, error) {
			a, err := next(ctx, q)
			if status.Code(err) == codes.OK {
				return next(ctx, but(q, func(q *readReq) { oldest(q.GetId().GetType()) }))
			}
			return a, err
		})},
	{"any version is the oldest", "Wildcards/Lists", "shows",
		asks(listCalls, func(q *listReq) {
			if q.GetType().GetKind() == "Thing" {
				oldest(q.GetType())
			}
		})},
	{"lists show every type", "Wildcards/Lists", "shows", everyVersion},
	{"pages skip one", "Wildcards/Pages", "shows", answers(listCalls, func(q *listReq, a *listRes) { skipOne(q.GetContinue(), &a.Resources) })},
	{"callers are not checked", "Wildcards/Access", "shows", tokenless()},
	{"callers are not checked", "Wildcards/Read", "no error", client(func(f *faulty) { withoutToken(&f.read) })},
	{"the types of hidden resources are disclosed", "Wildcards/Read", "expected PermissionDenied",
		on(readCalls, func(ctx context.Context, q *readReq, f *faulty, next method1[*readReq, *readRes]) (*readRes, error) {
			a, err := next(ctx, q)
			if _, untold := next(metadata.NewOutgoingContext(ctx, nil), q); status.Code(err) == codes.PermissionDenied && untold != nil {
				err = untold
			}
			return a, err
		})},
	{"leaving resources are not deleted", "Wildcards/Watch", "event", drop(hidden)},
	{"leaving resources disclose their version", "Wildcards/Watch", "the deletion of a leaving resource",
		events(func(f *faulty, ev *event, err error) ([]*event, error) {
			if err == nil && hidden(ev) {
				id := but(ev.GetDelete().GetResource().GetId(), func(id *resourcepb.ID) { id.Uid = "" })
				var mismatch storage.GroupVersionMismatchError
				if _, err := f.store.Read(context.Background(), strong, id); errors.As(err, &mismatch) {
					ev = but(ev, func(ev *event) { ev.GetDelete().GetResource().Id = mismatch.Stored.GetId() })
				}
			}
			return []*event{ev}, err
		})},
	{"other versions are deletions", "Wildcards/Watch", "the next event should be a write of a",
		events(func(_ *faulty, ev *event, err error) ([]*event, error) {
			res := ev.GetUpsert().GetResource()
			if err == nil && res.GetId().GetName() == "a" && res.GetId().GetType().GetGroupVersion() == "v2" {
				return []*event{{Event: &resourcepb.WatchEvent_Delete_{Delete: &resourcepb.WatchEvent_Delete{Resource: res}}}, ev}, nil
			}
			return []*event{ev}, err
		})},
	{"unknown fields are lost", "Payload/UnknownFields", "the payload is", on(writeCalls, known)},
	{"unknown types are lost", "Payload/UnknownTypes", "Write of", asks(writeCalls, func(q *writeReq) { q.Resource.Data = nil })},
	{"finished calls continue", "Endings/OverBeforeTheCall", "no error",
		on(writeCalls, func(ctx context.Context, q *writeReq, _ *faulty, next method1[*writeReq, *writeRes]) (*writeRes, error) {
			return next(context.WithoutCancel(ctx), q)
		})},
	{"cancelled is internal", "Endings/OverInTheCall", "expected Canceled", recoded(codes.Canceled, codes.Internal, "")},
	{"too late is unavailable", "Endings/OverInTheStore", "expected DeadlineExceeded", recoded(codes.DeadlineExceeded, codes.Unavailable, "")},
	{"cancelled is internal", "Endings/Streams", "expected Canceled", recoded(codes.Canceled, codes.Internal, "")},
	{"closed is internal", "Endings/ClosedStore", "expected Unavailable", recoded(codes.Unavailable, codes.Internal, "")},
	{"streams leave a goroutine", "Leaving/NothingIsLeftBehind", "disconnected clients leave nothing",
		on(watchCalls, func(ctx context.Context, q *watchReq, _ *faulty, next method1[*watchReq, stream[event]]) (stream[event], error) {
			ends := testEnds
			go func() { <-ends }()
			return next(ctx, q)
		})},
}

// testEnds is closed at the end of TestDefects: leaked goroutines wait for it.
var testEnds chan struct{}

// early writes a tombstone before the deletion has succeeded.
var early = on(deleteCalls, func(ctx context.Context, q *deleteReq, f *faulty, next method1[*deleteReq, *deleteRes]) (*deleteRes, error) {
	if now, err := f.read(ctx, &readReq{Id: q.GetId()}); err == nil {
		if _, err := insist(ctx, f.store, tombstone(now.GetResource().GetId())); err != nil {
			return nil, err
		}
	}
	return next(ctx, q)
})

// everyVersion lists resources of every group version.
var everyVersion = on(listCalls, func(ctx context.Context, q *listReq, f *faulty, _ method1[*listReq, *listRes]) (*listRes, error) {
	all, err := f.store.List(ctx, strong, storage.UnversionedTypeFrom(q.GetType()), q.GetTenancy(), q.GetNamePrefix())
	return &listRes{Resources: all}, err
})

// presentInstead reads the present instead of a revision that cannot be read.
var presentInstead = on(pastCalls, func(ctx context.Context, q *pastReq, _ *faulty, next method1[*pastReq, *pastRes]) (*pastRes, error) {
	a, err := next(ctx, q)
	if status.Code(err) == codes.OutOfRange {
		return next(ctx, but(q, func(q *pastReq) { q.Revision = 0 }))
	}
	return a, err
})

// withoutDeletions drops the deletions of change streams.
var withoutDeletions = changed(func(c *resourcepb.Change) *resourcepb.Change {
	if c.GetNow() == nil {
		return nil
	}
	return c
})

// skipOne drops the first element of a page after the first one.
func skipOne[T any](token string, page *[]T) {
	if token != "" && len(*page) > 0 {
		*page = (*page)[1:]
	}
}

// oldest replaces any type by its first version.
func oldest(t *resourcepb.Type) {
	if t.GetGroupVersion() == storage.Wildcard {
		t.GroupVersion = "v1"
	}
}

// lateCursors gives each event the cursor of the previous one.
func lateCursors() *fault {
	var mu sync.Mutex
	before := map[*faulty]string{} // of each server: cursors of another store would be refused
	return events(func(f *faulty, ev *event, err error) ([]*event, error) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil && ev.GetCursor() != "" {
			this := ev.GetCursor()
			late := cmp.Or(before[f], this)
			ev = but(ev, func(ev *event) { ev.Cursor = late })
			before[f] = this
		}
		return []*event{ev}, err
	})
}
