// Package damage is what every adapter must do about a resource that was damaged behind its back: say so for its key, and
// stop nobody else.
package damage

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// patience is how long anything may take: less than it takes a watch to give a database up that stays away.
const patience = 30 * time.Second

// Harness is a new, empty store.
type Harness struct {
	Backend storage.Backend
	// Replace puts other bytes where the adapter keeps the encoded resource, as a change that leaves its trace in the history,
	// like one that the adapter makes.
	Replace func(t *testing.T, id *resourcepb.ID, data []byte)
}

// Run runs the tests, each on a store of its own.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for _, damage := range []struct {
		name string
		data []byte
	}{
		{"garbage", []byte("\xff\xff\xff\xff")},
		{"nothing", []byte{}},
		{"a half", encoded(resource("damaged"))[:20]},
		{"another resource", encoded(resource("stranger"))},
		{"a resource without uid", encoded(&resourcepb.Resource{Id: &resourcepb.ID{
			Name: "damaged", Type: resource("").Id.Type, Tenancy: resource("").Id.Tenancy,
		}})},
	} {
		t.Run(damage.name, func(t *testing.T) {
			t.Parallel()
			s := store{t: t, Harness: open(t), data: damage.data}
			s.run()
		})
	}
}

var (
	kind    = storage.UnversionedType{Group: "g", Kind: "Kind"}
	tenancy = &resourcepb.Tenancy{Partition: "p", Namespace: "n"}
)

func resource(name string) *resourcepb.Resource {
	return &resourcepb.Resource{
		Id: &resourcepb.ID{
			Uid: "uid-" + name, Name: name, Tenancy: proto.CloneOf(tenancy),
			Type: &resourcepb.Type{Group: kind.Group, GroupVersion: "v1", Kind: kind.Kind},
		},
		Data: &anypb.Any{TypeUrl: "example.com/t", Value: []byte("payload")},
	}
}

func encoded(res *resourcepb.Resource) []byte {
	data, err := codec.Encode(res)
	if err != nil {
		panic(err)
	}
	return data
}

type store struct {
	Harness
	t    *testing.T
	data []byte
}

func (s *store) run() {
	t := s.t
	s.write(resource("above"))
	s.write(resource("damaged"))
	s.write(resource("zebra"))
	all, others := s.watch(""), s.watch("z")
	cursor := all.Cursor()
	s.Replace(t, resource("damaged").Id, s.data)
	last := s.write(resource("zebra-2"))

	t.Log("watches that were open")
	s.ends(all)
	s.shows(others, last)
	t.Log("watches that are resumed")
	s.ends(s.resume("", cursor))
	s.shows(s.resume("z", cursor), last)
	t.Log("what others read")
	if got, err := s.Backend.Read(s.ctx(), storage.StrongConsistency, resource("above").Id); err != nil || got.GetId().GetName() != "above" {
		t.Errorf("read of another key: %v, %v", got, err)
	}
	if got, err := s.Backend.List(s.ctx(), storage.StrongConsistency, kind, tenancy, "z"); err != nil || len(got) != 2 {
		t.Errorf("list without it: %d, %v", len(got), err)
	}
	s.watch("z").Close()

	damaged := s.everyReaderHearsOfIt()
	if damaged == nil {
		return
	}
	t.Log("writing it anew")
	uid := damaged.ID.GetUid()
	if uid == "" {
		uid = "uid-new"
	}
	anew := resource("damaged")
	anew.Id.Uid, anew.Version = uid, damaged.Version
	anew = s.write(anew)
	if got, err := s.Backend.Read(s.ctx(), storage.StrongConsistency, anew.Id); err != nil || !proto.Equal(got, anew) {
		t.Errorf("read after it was written anew: %v, %v; expected %v", got, err, anew)
	}
	if got, err := s.Backend.List(s.ctx(), storage.StrongConsistency, kind, tenancy, ""); err != nil || len(got) != 4 {
		t.Errorf("list after it was written anew: %d, %v", len(got), err)
	}
	w := s.watch("")
	t.Log("deleting it")
	s.Replace(t, anew.Id, s.data)
	if damaged = s.damagedRead(); damaged == nil {
		return
	}
	s.ends(w)
	if err := s.Backend.DeleteCAS(s.ctx(), damaged.ID, damaged.Version); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, err := s.Backend.Read(s.ctx(), storage.StrongConsistency, anew.Id); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("read after the deletion: %v, expected ErrNotFound", err)
	}
	if got, err := s.Backend.List(s.ctx(), storage.StrongConsistency, kind, tenancy, ""); err != nil || len(got) != 3 {
		t.Errorf("list after the deletion: %d, %v", len(got), err)
	}
	w = s.watch("")
	s.shows(w, s.write(resource("damaged")))
}

// everyReaderHearsOfIt reads the damaged resource in every way there is, and returns what Read says.
func (s *store) everyReaderHearsOfIt() *storage.DamagedError {
	t := s.t
	for _, consistency := range []storage.ReadConsistency{storage.StrongConsistency, storage.EventualConsistency} {
		_, err := s.Backend.Read(s.ctx(), consistency, resource("damaged").Id)
		_ = s.names("read, "+consistency.String(), err)
		_, err = s.Backend.List(s.ctx(), consistency, kind, tenancy, "")
		_ = s.names("list, "+consistency.String(), err)
		_, err = s.Backend.List(s.ctx(), consistency, storage.UnversionedType{Group: "*", Kind: "*"}, tenancy, "d")
		_ = s.names("list of any kind, "+consistency.String(), err)
	}
	pager, ok := storage.As[storage.Pager](s.Backend)
	if !ok {
		t.Fatal("no Pager")
	}
	for _, limit := range []int{0, 1} {
		for page := (storage.Page{}); ; {
			var err error
			page, err = pager.ListPage(s.ctx(), kind, tenancy, "", storage.ListOptions{Limit: limit, Continue: page.Continue})
			if err != nil {
				_ = s.names("page", err)
				break
			}
			if page.Continue == "" {
				t.Errorf("pages of %d came to their end", limit)
				break
			}
		}
	}
	w, err := s.Backend.WatchList(s.ctx(), kind, tenancy, "")
	if err == nil {
		defer w.Close()
		for err == nil {
			var ev *resourcepb.WatchEvent
			if ev, err = w.Next(s.ctx()); ev.GetEndOfSnapshot() != nil {
				t.Error("a snapshot came to its end")
				return nil
			}
		}
		if !errors.Is(err, storage.ErrWatchClosed) {
			t.Errorf("the watch's snapshot: %v, expected ErrWatchClosed", err)
		}
	}
	_ = s.names("the watch's snapshot", err)
	return s.damagedRead()
}

// damagedRead returns what Read says.
func (s *store) damagedRead() *storage.DamagedError {
	s.t.Helper()
	_, err := s.Backend.Read(s.ctx(), storage.StrongConsistency, resource("damaged").Id)
	return s.names("read", err)
}

// names expects an error that names the damaged key, and nothing that asks for a retry.
func (s *store) names(what string, err error) *storage.DamagedError {
	s.t.Helper()
	var damaged *storage.DamagedError
	if !errors.As(err, &damaged) || damaged.ID.GetName() != "damaged" || damaged.ID.GetType().GetKind() != kind.Kind {
		s.t.Errorf("%s: %v; expected a DamagedError for the key", what, err)
		return nil
	}
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrInconsistent) {
		s.t.Errorf("%s: %v; which is another error as well", what, err)
	}
	return damaged
}

func (s *store) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *store) write(res *resourcepb.Resource) *resourcepb.Resource {
	s.t.Helper()
	stored, err := s.Backend.WriteCAS(s.ctx(), res)
	if err != nil {
		s.t.Fatalf("write %s: %v", res.GetId().GetName(), err)
	}
	return stored
}

// watch returns a watch at the end of its snapshot.
func (s *store) watch(prefix string) storage.Watch {
	s.t.Helper()
	w, err := s.Backend.WatchList(s.ctx(), kind, tenancy, prefix)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(w.Close)
	for {
		ev, err := w.Next(s.ctx())
		if err != nil {
			s.t.Fatal(err)
		}
		if ev.GetEndOfSnapshot() != nil {
			return w
		}
	}
}

func (s *store) resume(prefix, cursor string) storage.Watch {
	s.t.Helper()
	resumer, ok := storage.As[storage.Resumer](s.Backend)
	if !ok {
		s.t.Fatal("no Resumer")
	}
	w, err := resumer.WatchFrom(s.ctx(), kind, tenancy, prefix, cursor)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(w.Close)
	return w
}

// ends expects a watch to end, by an error that names the key and asks for a new list.
func (s *store) ends(w storage.Watch) {
	s.t.Helper()
	ev, err := w.Next(s.ctx())
	if !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
		s.t.Errorf("the watch: %v, %v; expected ErrWatchClosed with ErrCompacted", ev, err)
	}
	_ = s.names("the watch", err)
	resumed := s.resume("", w.Cursor())
	if _, err := resumed.Next(s.ctx()); !errors.Is(err, storage.ErrCompacted) {
		s.t.Errorf("the watch resumed where the other ended: %v; expected ErrCompacted", err)
	}
	resumed.Close()
}

// shows expects a watch to return a write next.
func (s *store) shows(w storage.Watch, res *resourcepb.Resource) {
	s.t.Helper()
	ev, err := w.Next(s.ctx())
	if err != nil || !proto.Equal(ev.GetUpsert().GetResource(), res) {
		s.t.Errorf("the watch: %v, %v; expected %v", ev, err, res)
	}
}
