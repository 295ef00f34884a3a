package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// movable is a handle with its Mover.
type movable struct {
	storage.Backend
	driver.Mover
}

// close closes the store for writing.
func (m movable) close(s *suite, target string) {
	s.Helper()
	s.noError("SetFence", m.SetFence(s.ctx, &target))
	target = "changed by the caller" // the driver must not keep the pointer
}

// movables returns the handle of the case and a second one on the same store.
func movables(s *suite) (one, other movable) {
	s.Helper()
	of := func(b storage.Backend) movable { return movable{b, extension[driver.Mover](s, b)} }
	return of(s.b), of(s.another())
}

// extension returns an optional part of a driver.
func extension[T any](s *suite, b storage.Backend) T {
	s.Helper()
	part, ok := storage.As[T](b)
	if !ok {
		s.Fatalf("%T has no %T", b, &part)
	}
	return part
}

// listAll lists the whole store.
func listAll(s *suite, b storage.Backend) []*resourcepb.Resource {
	s.Helper()
	return must[[]*resourcepb.Resource](s)(b.List(s.ctx, strong, anything, anywhere, ""))
}

// refusals makes every call that changes a store, and returns the errors.
func refusals(ctx context.Context, b storage.Backend, there *resourcepb.Resource) map[string]error {
	_, create := b.WriteCAS(ctx, thingNamed("new"))
	update := thingNamed("there")
	update.Version, update.Generation = there.Version, "2"
	_, replace := b.WriteCAS(ctx, update)
	tried := map[string]error{"create": create, "update": replace, "delete": b.DeleteCAS(ctx, there.Id, there.Version)}
	if driver.GuardOf(ctx) == nil { // a write may fail for its guard or for a conflict; the error of a closed store has precedence
		_, tried["create what exists"] = b.WriteCAS(ctx, thingNamed("there"))
		other := thingNamed("there")
		other.Id.Uid = "other"
		_, tried["create what exists with another uid"] = b.WriteCAS(ctx, other)
	}
	if t, ok := storage.As[storage.Transactor](b); ok {
		_, tried["transaction"] = t.Commit(ctx, []storage.Op{{Write: thingNamed("new")}})
		_, tried["larger transaction"] = t.Commit(ctx, []storage.Op{
			{Write: thingNamed("new")}, {Delete: there.Id, Version: there.Version}, {Check: thingNamed("none").Id},
		})
	}
	return tried
}

// rowsOf returns resources as rows for a loader, in order.
func rowsOf(s *suite, all ...*resourcepb.Resource) []driver.Row {
	s.Helper()
	rows := make([]driver.Row, len(all))
	for i, res := range all {
		rows[i] = driver.Row{Key: key.Of(res.Id), Version: "of another store", Data: must[[]byte](s)(driver.Encode(res))}
	}
	slices.SortFunc(rows, func(a, b driver.Row) int { return a.Key.Compare(b.Key) })
	return rows
}

// loadResources returns n resources, some with an owner.
func loadResources(n int) []*resourcepb.Resource {
	all := make([]*resourcepb.Resource, n)
	for i := range all {
		all[i] = thingNamed(fmt.Sprintf("thing-%04d", i))
		all[i].Id.Type.GroupVersion = []string{"v1", ""}[i%2]
		all[i].Data = &anypb.Any{TypeUrl: "example.com/T", Value: []byte(strings.Repeat("x", i%100))}
		if i%3 == 1 {
			all[i].Owner = all[0].Id
		}
	}
	return all
}
