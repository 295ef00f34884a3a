package controllertest

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/driver"
)

// A manager whose service cannot follow its store to another one logs that its copies are not updated any more.
func TestManagerReportsThatTheStoreHasMoved(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		var log recorder
		e.Put(ID(itemType, "a"), wrapperspb.String("1"))
		e.Manager(&controller.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, controller.NewController("items", itemType).
			WithPlacement(controller.PlacementEachServer).
			WithReconciler(controller.ReconcileFunc(func(context.Context, controller.Runtime, controller.Request) error { return nil })))
		e.Settle()
		m, _ := storage.As[driver.GuardedMover](e.Backend)
		state, err := m.Fence(e.ctx)
		if err == nil {
			_, err = m.SetFenceAt(e.ctx, &driver.Fence{Target: "mem://there", Moved: true}, state.Epoch)
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		log.mu.Lock()
		defer log.mu.Unlock()
		if !strings.Contains(log.String(), "the store of this server has moved") {
			t.Errorf("the log of an hour does not say that the store has moved: %q", log.String())
		}
	})
}
