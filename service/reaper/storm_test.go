package reaper_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/reaper"
	"github.com/ashlar-dev/storage/service/registry"
)

// unreliable is a backend that loses some changes, and some acknowledgements.
type unreliable struct {
	storage.Backend
	transactor bool
}

func (u unreliable) As(target any) bool {
	if tx, ok := target.(*storage.Transactor); ok && u.transactor {
		*tx = unsureTransactor{u.Backend}
		return true
	}
	return false
}

func unsurely[T any](change func() (T, error)) (T, error) {
	var none T
	switch rand.N(10) {
	case 0:
		return none, fmt.Errorf("%w: lost", storage.ErrInconsistent)
	case 1:
		if _, err := change(); err != nil {
			return none, err
		}
		return none, fmt.Errorf("%w: not acknowledged", storage.ErrInconsistent)
	}
	return change()
}

func (u unreliable) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	return unsurely(func() (*resourcepb.Resource, error) { return u.Backend.WriteCAS(ctx, res) })
}

func (u unreliable) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	_, err := unsurely(func() (any, error) { return nil, u.Backend.DeleteCAS(ctx, id, version) })
	return err
}

type unsureTransactor struct{ storage.Backend }

func (unsureTransactor) MaxOps() int { return 32 }

func (u unsureTransactor) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	tx, _ := storage.As[storage.Transactor](u.Backend)
	return unsurely(func() ([]*resourcepb.Resource, error) { return tx.Commit(ctx, ops) })
}

// Clients of two servers over one unreliable store set owners, finalize and delete at random. A marked resource stays marked and
// only loses finalizers, a resource with finalizers is marked before it is deleted, and two reapers delete all children of deleted owners.
func TestConcurrentDeletions(t *testing.T) {
	for _, transactor := range []bool{true, false} {
		t.Run(fmt.Sprint("transactor=", transactor), func(t *testing.T) {
			f := newForest(t)
			b := unreliable{f.backend, transactor}
			servers := []*service.Server{service.New(b, registry.NewOpen(registry.Type{}), nil), service.New(b, registry.NewOpen(registry.Type{}), nil)}
			follow, err := f.backend.WatchList(f.ctx, nodes, anywhere, "")
			if err != nil {
				t.Fatal(err)
			}
			defer follow.Close()
			ctx, cancel := context.WithCancel(f.ctx)
			defer cancel()
			var reapers sync.WaitGroup
			for _, s := range servers {
				reapers.Go(func() {
					_ = reaper.New(s, &reaper.Options{Settle: time.Second, Logger: slog.New(slog.DiscardHandler)}).Run(ctx)
				})
			}
			var clients sync.WaitGroup
			for i := range 8 {
				clients.Go(func() {
					for range 100 {
						storm(f, servers[i%2])
					}
				})
			}
			clients.Wait()
			f.calm(follow)
			for _, res := range f.all(nodes) { // of the living ones too, or there is nothing to do for the reapers
				if res.GetOwner() == nil {
					finish(f, res)
				}
			}
			for f.count(nodes) > 0 {
				for _, res := range f.all(nodes) {
					if res.GetMetadata()["deletionTimestamp"] != "" {
						finish(f, res)
					}
				}
				if f.ctx.Err() != nil {
					t.Fatalf("%v and %v remain", f.all(nodes), f.all(stones))
				}
			}
			f.until(stones, 0)
			cancel()
			reapers.Wait()
		})
	}
}

func (f *forest) all(typ storage.UnversionedType) []*resourcepb.Resource {
	f.Helper()
	all, err := f.backend.List(f.ctx, storage.StrongConsistency, typ, anywhere, "")
	if err != nil {
		f.Fatal(err)
	}
	return all
}

// finish deletes a resource with any finalizers.
func finish(f *forest, res *resourcepb.Resource) {
	_, err := f.server.Delete(f.ctx, &resourcepb.DeleteRequest{Id: res.GetId()})
	if err != nil {
		f.Error(err)
	}
	res, err = f.backend.Read(f.ctx, storage.StrongConsistency, res.GetId())
	if errors.Is(err, storage.ErrNotFound) {
		return
	}
	if err != nil {
		f.Fatal(err)
	}
	delete(res.Metadata, "finalizers")
	if _, err := f.server.Write(f.ctx, &resourcepb.WriteRequest{Resource: res}); err != nil {
		switch status.Code(err) {
		case codes.Aborted, codes.FailedPrecondition: // somebody else was faster
		default:
			f.Error(err)
		}
	}
}

// storm runs random operations of a client.
func storm(f *forest, s *service.Server) {
	ctx := f.ctx
	id := &resourcepb.ID{Type: nodeType, Name: fmt.Sprint("n", rand.N(12)), Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"}}
	read, err := s.Read(ctx, &resourcepb.ReadRequest{Id: id})
	res := read.GetResource()
	if err != nil {
		res = &resourcepb.Resource{Id: id, Metadata: map[string]string{"finalizers": []string{"", "", "x", "y x"}[rand.N(4)]}}
		if rand.N(4) > 0 {
			res.Owner = &resourcepb.ID{Type: nodeType, Name: fmt.Sprint("n", rand.N(12)), Tenancy: id.GetTenancy()}
		}
	} else if rand.N(2) == 0 {
		res.Version = ""
	}
	switch rand.N(7) {
	case 0, 1:
		_, err = s.Delete(ctx, &resourcepb.DeleteRequest{Id: res.GetId(), Version: res.GetVersion()})
	case 2:
		res.Metadata = map[string]string{"finalizers": "z", "deletionTimestamp": time.Now().Format(time.RFC3339)}
		_, err = s.Write(ctx, &resourcepb.WriteRequest{Resource: res})
	case 3:
		_, err = s.WriteStatus(ctx, &resourcepb.WriteStatusRequest{
			Id: res.GetId(), Key: fmt.Sprint(rand.N(3)), Status: &resourcepb.Status{ObservedGeneration: res.GetGeneration()},
		})
	case 4:
		if _, finalizer, ok := strings.Cut(res.GetMetadata()["finalizers"], " "); ok {
			res.Metadata["finalizers"] = finalizer
		} else {
			res.Metadata = maps.Clone(res.GetMetadata())
			delete(res.Metadata, "finalizers")
		}
		_, err = s.Write(ctx, &resourcepb.WriteRequest{Resource: res})
	default:
		_, err = s.Write(ctx, &resourcepb.WriteRequest{Resource: res})
	}
	switch status.Code(err) {
	case codes.OK, codes.Unavailable, codes.Aborted, codes.FailedPrecondition, codes.InvalidArgument, codes.NotFound:
	default:
		f.Error(err)
	}
}

// calm checks the history of the resources so far.
func (f *forest) calm(w storage.Watch) {
	f.Helper()
	if err := w.(storage.Bookmarker).Bookmark(f.ctx); err != nil {
		f.Fatal(err)
	}
	last := map[string]*resourcepb.Resource{} // by names
	marked, deleted := 0, 0
	for {
		ev, err := w.Next(f.ctx)
		if err != nil {
			f.Fatal(err)
		}
		if ev.GetBookmark() != nil {
			break
		}
		if gone := ev.GetDelete().GetResource(); gone != nil {
			deleted++
			if last := last[gone.GetId().GetName()]; len(finalizers(last)) > 0 && last.GetMetadata()["deletionTimestamp"] == "" {
				f.Errorf("deleted with finalizers and without a mark: %v", last)
			}
			delete(last, gone.GetId().GetName())
		}
		res := ev.GetUpsert().GetResource()
		if res == nil {
			continue
		}
		name := res.GetId().GetName()
		if was := last[name]; was != nil {
			mark := was.GetMetadata()["deletionTimestamp"]
			if was.GetId().GetUid() != res.GetId().GetUid() {
				f.Errorf("another incarnation without a deletion: %v, %v", was, res)
			}
			if mark != "" && (res.GetMetadata()["deletionTimestamp"] != mark || len(finalizers(res)) > len(finalizers(was))) {
				f.Errorf("the mark was lost: %v, %v", was, res)
			}
			if mark == "" && res.GetMetadata()["deletionTimestamp"] != "" {
				marked++
			}
			for key := range was.GetStatus() {
				if res.GetStatus()[key] == nil {
					f.Errorf("a status was lost: %v, %v", was, res)
				}
			}
		} else if res.GetMetadata()["deletionTimestamp"] != "" || len(res.GetStatus()) > 0 {
			f.Errorf("it came marked, or with a status: %v", res)
		}
		last[name] = res
	}
	if marked == 0 || deleted == 0 {
		f.Errorf("%d resources were marked and %d deleted: this tests nothing", marked, deleted)
	}
}

func finalizers(res *resourcepb.Resource) []string {
	return strings.Fields(res.GetMetadata()["finalizers"])
}
