package service_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// After each event without More, the watcher's copy equals the state that a reader could see at that time. The commits
// contain changes that are hidden, and changes that move resources into the view or out of it. The watch may be
// resumed from the cursor of any event.
func TestCommitsWithHiddenChanges(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	b := inmem.New(nil)
	defer b.Close()
	var types []registry.Type
	for _, version := range []string{"v1", "v2"} {
		types = append(types, registry.Type{
			Type:  &resourcepb.Type{Group: albumType.GetGroup(), GroupVersion: version, Kind: albumType.GetKind()},
			Proto: &wrapperspb.StringValue{}, Scope: registry.ScopeNamespace,
			MayRead: func(_ registry.Caller, _ *resourcepb.ID, res *resourcepb.Resource) error {
				if res == nil {
					return registry.ErrNeedResource
				}
				if res.GetMetadata()["hidden"] != "" {
					return registry.ErrDenied
				}
				return nil
			},
		})
	}
	known, err := registry.New(types...)
	if err != nil {
		t.Fatal(err)
	}
	c := service.New(b, known, nil).Client()
	watchers := make(chan error, 8)
	for i := range cap(watchers) {
		started := make(chan struct{})
		go func() { watchers <- apply(ctx, c, i%2 == 0, started) }()
		<-started
	}
	tx, _ := storage.As[storage.Transactor](b)
	stored := map[string]*resourcepb.Resource{}
	for round := range 300 {
		var ops []storage.Op
		for _, n := range rand.Perm(6)[:1+rand.N(6)] {
			name := fmt.Sprint("n", n)
			was := stored[name]
			if was != nil && rand.N(3) == 0 {
				ops = append(ops, storage.Op{Delete: was.GetId(), Version: was.GetVersion()})
				delete(stored, name)
				continue
			}
			res := album(name, "")
			version := []string{"v1", "v1", "v1", "v2"}[rand.N(4)]
			res.Id.Type = &resourcepb.Type{Group: albumType.GetGroup(), GroupVersion: version, Kind: albumType.GetKind()}
			res.Id.Tenancy = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
			res.Id.Uid, res.Version = "uid-"+name, was.GetVersion()
			res.Metadata = map[string]string{"round": fmt.Sprint(round)}
			if rand.N(3) == 0 {
				res.Metadata["hidden"] = "yes"
			}
			ops = append(ops, storage.Op{Write: res})
		}
		// One resource of each commit, visible to all, has the state that a reader sees after the commit.
		expected := map[string]string{}
		for _, op := range ops {
			if op.Write != nil {
				stored[op.Write.GetId().GetName()] = op.Write
			}
		}
		for name, res := range stored {
			if name != "state" && res.GetMetadata()["hidden"] == "" && res.GetId().GetType().GetGroupVersion() == "v1" {
				expected[name] = res.GetMetadata()["round"]
			}
		}
		state := album("state", "")
		state.Id.Tenancy = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
		state.Id.Uid, state.Version = "uid-state", stored["state"].GetVersion()
		state.Metadata = map[string]string{"expected": fmt.Sprint(expected), "round": fmt.Sprint(round)}
		if round == 299 {
			state.Metadata["last"] = "yes"
		}
		ops = slices.Insert(ops, rand.N(len(ops)+1), storage.Op{Write: state})
		out, err := tx.Commit(ctx, ops)
		if err != nil {
			t.Fatal(err)
		}
		for _, res := range out {
			if res != nil {
				stored[res.GetId().GetName()] = res
			}
		}
	}
	for range cap(watchers) {
		if err := <-watchers; err != nil {
			t.Error(err)
		}
	}
}

// apply follows a watch, resuming it from time to time, and compares.
func apply(ctx context.Context, c resourcegrpc.ResourceServiceClient, before bool, started chan<- struct{}) error {
	view := map[string]string{}
	expected, cursor, last := "map[]", "", false
	open := "" // the commit that goes on
	for {
		one, stop := context.WithCancel(ctx)
		w, err := c.WatchList(one, &resourcepb.WatchListRequest{Type: albumType, Cursors: true, Cursor: cursor, Before: before})
		if err != nil {
			stop()
			return err
		}
		if started != nil {
			close(started)
			started = nil
		}
		for n := 1 + rand.N(20); n > 0; n-- {
			ev, err := w.Recv()
			if err != nil {
				stop()
				return err
			}
			if res := ev.GetUpsert().GetResource(); res.GetId().GetName() == "state" {
				expected, last = res.GetMetadata()["expected"], res.GetMetadata()["last"] != ""
			} else if res != nil {
				view[res.GetId().GetName()] = res.GetMetadata()["round"]
			}
			if gone := ev.GetDelete().GetResource(); gone != nil {
				if _, there := view[gone.GetId().GetName()]; !there {
					stop()
					return errors.New("the end of a resource that was not shown:  " + gone.GetId().GetName())
				}
				delete(view, gone.GetId().GetName())
			}
			round := ev.GetUpsert().GetResource().GetMetadata()["round"]
			if open != "" && round != "" && round != open {
				stop()
				return fmt.Errorf("commit %s continues with an event of commit %s", open, round)
			}
			if open = ""; ev.GetMore() {
				open = round
			}
			if strings.Contains(ev.String(), "hidden") {
				stop()
				return fmt.Errorf("it shows %v", ev)
			}
			if !ev.GetMore() && fmt.Sprint(view) != expected {
				stop()
				return fmt.Errorf("the watch shows %v, a reader sees %s", view, expected)
			}
			if last && !ev.GetMore() {
				stop()
				return nil
			}
			cursor = ev.GetCursor()
		}
		stop()
	}
}
