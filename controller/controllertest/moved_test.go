package controllertest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/moved"
)

// A controller continues after its store has moved, although no watch returns the new versions of the copied resources. It writes to the next
// store and sees later changes.
func TestStoreMoves(t *testing.T) {
	t.Parallel()
	from, to := inmem.New(nil), inmem.New(nil)
	store := moved.New(from, func(context.Context, *storage.MovedError) (storage.Backend, error) { return to, nil })
	defer store.Close()
	run(t, nil, store, func(e *Env) {
		items := controller.NewKind[*wrapperspb.StringValue](itemType)
		var hasMoved atomic.Bool
		var seen atomic.Value
		seen.Store("")
		e.Put(ID(itemType, "a"), wrapperspb.String("1"))
		e.Manager(nil, controller.NewController("items", itemType).WithPlacement(controller.PlacementEachServer).
			WithBackoff(time.Millisecond, 50*time.Millisecond).
			WithReconciler(controller.Typed(func(ctx context.Context, rt controller.Runtime, req controller.TypedRequest[*wrapperspb.StringValue]) error {
				if req.Object == nil {
					return nil
				}
				seen.Store(req.Object.Data.GetValue())
				if !hasMoved.Load() {
					return controller.RequeueAfter(10 * time.Millisecond)
				}
				req.Object.Metadata = map[string]string{"done": "yes"}
				_, err := items.Apply(ctx, rt, req.Object)
				return err
			})))
		fixture.Eventually(t, "the first reconcile", func() bool { return seen.Load() == "1" })
		o := &migrate.Options{From: "old", To: "new", Live: true, CutoverLag: time.Hour}
		if _, err := migrate.Run(fixture.Context(t), from, to, o); err != nil {
			t.Fatal(err)
		}
		hasMoved.Store(true)
		fixture.Eventually(t, "a write after the move", func() bool {
			return fixture.Stored(t, to, ID(itemType, "a")).GetMetadata()["done"] == "yes"
		})
		for _, text := range []string{"2", "3"} {
			e.Put(ID(itemType, "a"), wrapperspb.String(text))
			fixture.Eventually(t, "a reconcile of "+text, func() bool { return seen.Load() == text })
		}
	})
}
