package controllertest

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/moved"
)

// recorder is a log that a test reads while it is written.
type recorder struct {
	mu sync.Mutex
	bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Buffer.Write(p)
}

// A process whose leases follow their store to another one keeps its record up to date there.
func TestProcessRecordAfterMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		from, to := inmem.New(nil), inmem.New(nil)
		store := moved.New(from, func(context.Context, *storage.MovedError) (storage.Backend, error) { return to, nil })
		defer store.Close()
		run(t, nil, store, func(e *Env) {
			var log recorder
			e.Put(ID(itemType, "a"), wrapperspb.String("1"))
			e.Manager(&controller.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}, controller.NewController("items", itemType).
				WithReconciler(controller.ReconcileFunc(func(context.Context, controller.Runtime, controller.Request) error { return nil })))
			time.Sleep(time.Minute)
			o := &migrate.Options{From: "old", To: "new", Live: true, CutoverLag: time.Hour}
			if _, err := migrate.Run(e.ctx, from, to, o); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Minute)
			log.mu.Lock()
			log.Reset()
			log.mu.Unlock()
			time.Sleep(5 * time.Minute)
			log.mu.Lock()
			defer log.mu.Unlock()
			if n := strings.Count(log.String(), "cannot renew the record"); n > 0 {
				t.Errorf("%d failed renewals of the record from 5 to 10 minutes after the move:\n%.600s", n, log.String())
			}
		})
	})
}
