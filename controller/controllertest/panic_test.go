package controllertest

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/resourcepb"
)

// firstCalls panics in the first call of each name.
type firstCalls struct{ done record }

func (f *firstCalls) call(name string) {
	if f.done.add(name) == 1 {
		panic("the first call of " + name)
	}
}

// A panic of any function of a controller is an error: the process goes on, and the call is repeated.
func TestFunctionsThatPanic(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		e.Put(ID(listType, "a"), wrapperspb.String(""))
		var f firstCalls
		var finished atomic.Int64
		source := make(chan controller.Event)
		request := []controller.Request{{ID: ID(listType, "a")}}
		e.Manager(nil, controller.NewController("lists", listType).
			WithInitializer(initializer(func() error { f.call("the initializer"); return nil })).
			WithQuery("query", func(c controller.Cache, _ ...any) (controller.ResourceIterator, error) {
				f.call("the query")
				return c.ListIterator(listType, controller.IDIndex, ID(listType, ""))
			}).
			WithWatch(itemType, func(_ context.Context, _ controller.Runtime, res *resourcepb.Resource) ([]controller.Request, error) {
				f.call("the mapper of " + text(res))
				return request, nil
			}).
			WithCustomWatch(&controller.Source{Source: source}, func(context.Context, controller.Runtime, controller.Event) ([]controller.Request, error) {
				f.call("the mapper of the source")
				return request, nil
			}).
			WithReconciler(controller.ReconcileFunc(func(_ context.Context, rt controller.Runtime, _ controller.Request) error {
				f.call("the reconciler")
				_, err := rt.Cache.Query("query")
				finished.Add(1)
				return err
			})))
		expectReconcile := func(after string) {
			t.Helper()
			time.Sleep(time.Minute)
			if finished.Swap(0) == 0 {
				t.Errorf("no reconcile has succeeded after %s", after)
			}
		}
		expectReconcile("panics of the initializer, the reconciler and the query")
		e.Put(ID(itemType, "item"), wrapperspb.String("one"))
		expectReconcile("a panic of the mapper for the new state")
		e.Put(ID(itemType, "item"), wrapperspb.String("two"))
		expectReconcile("a panic of the mapper for one of two states")
		source <- controller.Event{}
		expectReconcile("a panic of the mapper of the source")
		for _, name := range []string{"the initializer", "the query", "the mapper of one", "the mapper of two", "the mapper of the source", "the reconciler"} {
			if f.done.get(name) < 2 {
				t.Errorf("%d calls of %s, expected another one after the panic", f.done.get(name), name)
			}
		}
	})
}

// The logger of a reconcile adds the names of the controller and of the resource to each record, before all other attributes.
func TestLoggerOfAReconcile(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		e.Put(ID(listType, "a"), wrapperspb.String(""))
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug - 4, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		p := e.Manager(&controller.Options{Logger: logger}, controller.NewController("lists", listType).WithPlacement(controller.PlacementEachServer).
			WithReconciler(controller.ReconcileFunc(func(_ context.Context, rt controller.Runtime, _ controller.Request) error {
				rt.Logger.Info("plain", "k", 1)
				rt.Logger.With("with", 2).Trace("derived")
				rt.Logger.WithGroup("g").Info("grouped", "k", 3)
				return nil
			})))
		e.Settle()
		p.Stop()
		const names = " controller=lists resource=default/default/a "
		want := "level=INFO msg=plain" + names + "k=1\nlevel=DEBUG-4 msg=derived" + names + "with=2\nlevel=INFO msg=grouped" + names + "g.k=3\n"
		if got := out.String(); !strings.HasSuffix(got, want) {
			t.Errorf("the log is\n%s\nexpected\n%s", got, want)
		}
	})
}
