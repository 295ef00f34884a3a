package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// fenceRefuses closes a store and tries to change it, through both handles.
func fenceRefuses(s *suite) {
	one, other := movables(s)
	ctx := s.ctx
	there := must[*resourcepb.Resource](s)(other.WriteCAS(ctx, thingNamed("there")))
	if state, err := one.Fence(ctx); err != nil || state.Closed {
		s.Fatalf("a new store: %+v, %v", state, err)
	}
	one.close(s, "etcd://first")
	one.close(s, "etcd://new-place")
	for name, b := range map[string]movable{"the fencing handle": one, "the other handle": other} {
		if state, err := b.Fence(ctx); err != nil || !state.Closed || state.Target != "etcd://new-place" {
			s.Errorf("%s: %+v, %v", name, state, err)
		}
		for what, err := range refusals(ctx, b.Backend, there) {
			if !errors.Is(err, storage.ErrFenced) || !strings.Contains(err.Error(), "etcd://new-place") {
				s.Errorf("%s, %s: got %v, expected ErrFenced with the target", name, what, err)
			}
		}
		got, err := b.Read(ctx, strong, there.Id)
		if err != nil || got.Version != there.Version {
			s.Errorf("%s: reading: %v, %v", name, got, err)
		}
		// The migration tool can still write notes.
		revision := must[string](s)(b.WriteNote(ctx, "note", []byte("a"), ""))
		revision = must[string](s)(b.WriteNote(ctx, "note", []byte("b"), revision))
		s.noError("DeleteNote", b.DeleteNote(ctx, "note", revision))
	}
}

// fenceOpens closes and opens a store, and writes to it.
func fenceOpens(s *suite) {
	one, other := movables(s)
	ctx := s.ctx
	s.noError("SetFence", one.SetFence(ctx, nil))
	there := must[*resourcepb.Resource](s)(other.WriteCAS(ctx, thingNamed("there")))
	one.close(s, "mem://x")
	if _, err := other.WriteCAS(ctx, thingNamed("new")); !errors.Is(err, storage.ErrFenced) {
		s.Fatalf("got %v, expected ErrFenced", err)
	}
	s.noError("SetFence", one.SetFence(ctx, nil))
	if state, err := other.Fence(ctx); err != nil || state.Closed {
		s.Errorf("%+v, %v", state, err)
	}
	for _, b := range []movable{one, other} {
		there.Generation += "."
		there = must[*resourcepb.Resource](s)(b.WriteCAS(ctx, there))
	}
	s.noError("DeleteCAS", other.DeleteCAS(ctx, there.Id, there.Version))
}

// fenceWithWriters fences a store while two handles write.
func fenceWithWriters(s *suite) {
	one, other := movables(s)
	cutOff(s.ctx, s, []movable{one, other}, func() { one.close(s, "mem://x") }, storage.ErrFenced)
}

// cutOff makes writers write until cut makes their writes fail with want. When cut has returned, every acknowledged write is visible, and no
// further write succeeds.
func cutOff(ctx context.Context, s *suite, handles []movable, cut func(), want error) {
	s.Helper()
	const writers = 12
	warm := make(chan struct{}, writers)
	acknowledged := make([][]string, writers)
	ends := make([]error, writers)
	var group sync.WaitGroup
	for i := range writers {
		b := handles[i%len(handles)]
		group.Go(func() {
			for n := 1; ends[i] == nil; n++ {
				res := thingNamed(fmt.Sprintf("%d-%06d", i, n))
				if _, ends[i] = b.WriteCAS(ctx, res); ends[i] == nil {
					acknowledged[i] = append(acknowledged[i], res.Id.Name)
				}
				if n == 5 || n < 5 && ends[i] != nil {
					warm <- struct{}{}
				}
			}
		})
	}
	for range writers {
		<-warm
	}
	cut()
	names := func() map[string]bool {
		all := make(map[string]bool)
		for _, res := range listAll(s, handles[0]) {
			all[res.Id.Name] = true
		}
		return all
	}
	after := names()
	group.Wait()
	if later := names(); len(later) != len(after) {
		s.Errorf("the store held %d resources when writers had been cut off, and %d later", len(after), len(later))
	}
	total := 0
	for i, err := range ends {
		if !errors.Is(err, want) {
			s.Errorf("writer %d ended with %v, expected %v", i, err, want)
		}
		total += len(acknowledged[i])
		for _, name := range acknowledged[i] {
			if !after[name] {
				s.Errorf("%s was acknowledged, but was not there when writers had been cut off", name)
			}
		}
	}
	if total != len(after) {
		s.Errorf("%d writes were acknowledged, and the store holds %d", total, len(after))
	}
}
