package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// bulkReads reads, in steps, resources that another handle wrote. Some of them are large.
func bulkReads(s *suite) {
	r := extension[driver.Bulk](s, s.b)
	_, other := movables(s)
	ctx := s.ctx
	if rows := must[[]driver.Row](s)(r.ReadAfter(ctx, nil, 10)); len(rows) != 0 {
		s.Fatalf("an empty store: got %d rows", len(rows))
	}
	written := make(map[key.Key]*resourcepb.Resource)
	for i := range 30 {
		for _, group := range []string{"a", "a/b", "Z", "\U0010ffff"} {
			res := thingNamed(fmt.Sprintf("thing-%d", i))
			res.Id.Type.Group = group
			if i < 6 {
				res.Data = &anypb.Any{TypeUrl: "x", Value: make([]byte, 500<<10)}
			}
			res = must[*resourcepb.Resource](s)(other.WriteCAS(ctx, res))
			written[key.Of(res.Id)] = res
		}
	}
	for _, limit := range []int{1, 7, 1000} {
		var all []driver.Row
		var after []byte
		for {
			rows := must[[]driver.Row](s)(r.ReadAfter(ctx, after, limit))
			size := 0
			for _, row := range rows {
				size += len(row.Data)
			}
			if len(rows) > limit || size > driver.ReadBytes+maxSize {
				s.Fatalf("limit %d: got %d rows of %d bytes together", limit, len(rows), size)
			}
			if len(rows) == 0 {
				break
			}
			all = append(all, rows...)
			after = rows[len(rows)-1].Key.Bytes()
		}
		if len(all) != len(written) || !slices.IsSortedFunc(all, func(a, b driver.Row) int { return a.Key.Compare(b.Key) }) {
			s.Fatalf("limit %d: got %d rows, or out of order; expected %d in order", limit, len(all), len(written))
		}
		for _, row := range all {
			res := must[*resourcepb.Resource](s)(driver.Decode(row.Key, row.Data, row.Version))
			if !proto.Equal(res, written[row.Key]) {
				s.Errorf("limit %d: %v differs from the written resource", limit, row.Key)
			}
		}
	}
}

// maxSize is the maximum excess of a step over its byte limit, from its last row.
const maxSize = 1 << 20

// loadContent reads loaded resources in every way.
func loadContent(s *suite) {
	l := extension[driver.Bulk](s, s.b)
	_, other := movables(s)
	ctx := s.ctx
	all := loadResources(1000)
	// One resource between the loaded ones is created before.
	must[*resourcepb.Resource](s)(other.WriteCAS(ctx, all[500]))
	s.noError("Load", l.Load(ctx, nil))
	s.noError("Load", l.Load(ctx, rowsOf(s, append(slices.Clone(all[:500]), all[501:]...)...)))
	list := listAll(s, other)
	if len(list) != len(all) {
		s.Fatalf("the list holds %d resources, expected %d", len(list), len(all))
	}
	versions := make(map[string]bool)
	for i, got := range list {
		versions[got.Version] = true
		want := proto.CloneOf(all[i])
		want.Version = got.Version
		if !proto.Equal(got, want) {
			s.Fatalf("got %v, expected %v", got, want)
		}
	}
	if len(versions) != len(all) || versions[""] || versions["of another store"] {
		s.Errorf("%d resources have %d versions", len(all), len(versions))
	}
	owned := must[[]*resourcepb.ID](s)(other.OwnerReferences(ctx, all[0].Id))
	if len(owned) != 333 || !proto.Equal(owned[1], all[4].Id) {
		s.Errorf("%d are owned, expected 333", len(owned))
	}
	changed := proto.CloneOf(list[5])
	changed.Generation = "2"
	must[*resourcepb.Resource](s)(other.WriteCAS(ctx, changed))
	s.noError("DeleteCAS", other.DeleteCAS(ctx, list[6].Id, list[6].Version))
}

// loadAllOrNothing loads valid and invalid rows together.
func loadAllOrNothing(s *suite) {
	l := extension[driver.Bulk](s, s.b)
	_, other := movables(s)
	ctx := s.ctx
	all := loadResources(50)
	there := must[*resourcepb.Resource](s)(other.WriteCAS(ctx, all[40]))
	large := thingNamed("zzz")
	large.Data = &anypb.Any{Value: make([]byte, maxSize)}
	nameless := thingNamed("a")
	nameless.Id.Uid = ""
	for what, rows := range map[string][]driver.Row{
		"one is there":     rowsOf(s, all...),
		"one is too large": rowsOf(s, append(loadResources(10), large)...),
		"one has no uid":   rowsOf(s, append(loadResources(10), nameless)...),
	} {
		err := l.Load(ctx, rows)
		if err == nil || what == "one is too large" && !errors.Is(err, storage.ErrTooLarge) || what == "one has no uid" && !errors.Is(err, storage.ErrInvalid) {
			s.Errorf("%s: got %v", what, err)
		}
	}
	other.close(s, "mem://elsewhere")
	if err := l.Load(ctx, rowsOf(s, loadResources(10)...)); !errors.Is(err, storage.ErrFenced) || !strings.Contains(err.Error(), "mem://elsewhere") {
		s.Errorf("got %v, expected ErrFenced with the target", err)
	}
	list := listAll(s, other)
	if len(list) != 1 || !proto.Equal(list[0], there) {
		s.Errorf("the store holds %d resources, expected only the earlier one", len(list))
	}
}

// loadWatched loads while watches are open on both handles and another handle changes the loaded resources.
func loadWatched(s *suite) {
	l := extension[driver.Bulk](s, s.b)
	here, other := movables(s)
	ctx := s.ctx
	all := loadResources(600)
	var watches []storage.Watch
	for _, b := range []movable{here, other} {
		w := must[storage.Watch](s)(b.WatchList(ctx, anything, anywhere, ""))
		defer w.Close()
		if ev := must[*resourcepb.WatchEvent](s)(w.Next(ctx)); ev.GetEndOfSnapshot() == nil {
			s.Fatalf("an empty store's watch begins with %v", ev)
		}
		watches = append(watches, w)
	}
	over := make(chan error, 1)
	go func() { over <- changeLoaded(ctx, other.Backend, all) }()
	for group := range slices.Chunk(rowsOf(s, all...), 100) {
		s.noError("Load", l.Load(ctx, group))
	}
	s.noError("changing loaded resources", <-over)
	must[*resourcepb.Resource](s)(other.WriteCAS(ctx, thingNamed("zzz-the-end")))
	for i, w := range watches {
		last := make(map[string]int)
		for {
			ev := must[*resourcepb.WatchEvent](s)(w.Next(ctx))
			name := ev.GetUpsert().GetResource().GetId().GetName()
			step := 1 // of a resource that is created, changed and deleted
			switch {
			case ev.GetDelete() != nil:
				name, step = ev.GetDelete().GetResource().GetId().GetName(), 3
			case ev.GetUpsert().GetResource().GetGeneration() != "":
				step = 2
			}
			if name == "zzz-the-end" {
				break
			}
			if last[name]++; last[name] != step {
				s.Fatalf("watch %d, %s: event %d is %v", i, name, last[name], ev)
			}
		}
		for n, res := range all {
			if want := 1 + n%3; last[res.Id.Name] != want {
				s.Errorf("watch %d, %s: %d events, expected %d", i, res.Id.Name, last[res.Id.Name], want)
			}
		}
	}
}

// changeLoaded changes two of three resources as soon as they are loaded, and deletes one of the two.
func changeLoaded(ctx context.Context, b storage.Backend, all []*resourcepb.Resource) error {
	for n, res := range all {
		if n%3 == 0 {
			continue
		}
		var got *resourcepb.Resource
		for {
			var err error
			if got, err = b.Read(ctx, strong, res.Id); err == nil {
				break
			}
			if !errors.Is(err, storage.ErrNotFound) {
				return err
			}
		}
		got.Generation = "2"
		got, err := b.WriteCAS(ctx, got)
		if err == nil && n%3 == 2 {
			err = b.DeleteCAS(ctx, got.Id, got.Version)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
