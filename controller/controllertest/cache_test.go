package controllertest

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

func indexByText(f func(string)) *controller.Index {
	return controller.IndexBy("text", func(o *typed.Object[*wrapperspb.StringValue]) []string {
		f(o.Data.GetValue())
		return []string{o.Data.GetValue()}
	})
}

// A panic of an index ends neither the process nor the copy. While the index lacks a resource, reads through it fail and name the resource.
func TestIndexThatPanics(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		index := indexByText(func(s string) {
			if s == "bad" {
				panic("the index")
			}
		})
		put := func(name, text string) { e.Put(ID(itemType, "%s", name), wrapperspb.String(text)) }
		put("a", "bad")
		put("b", "good")
		var done record
		var read atomic.Value // the result of the last read through the index
		e.Manager(nil, controller.NewController("items", itemType, index).
			WithReconciler(controller.ReconcileFunc(func(_ context.Context, rt controller.Runtime, req controller.Request) error {
				done.add(req.ID.GetName())
				all, err := rt.Cache.List(itemType, "text", "good")
				read.Store(fmt.Sprintf("%d, %v", len(all), err))
				return err
			})))
		checkRead := func(want string) {
			t.Helper()
			if got := fmt.Sprint(read.Load()); !strings.Contains(got, want) {
				t.Errorf("the index finds %s, expected %s", got, want)
			}
		}
		e.Settle()
		checkRead("lacks the resource")
		put("c", "bad")
		put("b", "bad")
		put("a", "good")
		put("d", "good")
		e.Settle()
		checkRead("lacks the resource")
		if done.len() != 4 {
			t.Errorf("%d items were reconciled, expected 4", done.len())
		}
		put("b", "good")
		e.Delete(ID(itemType, "c"))
		e.Settle()
		checkRead("3, <nil>")
	})
}

// Two indexes of a type with one name are a mistake, also in two controllers; one index in two controllers is none.
func TestRegisterChecksTheNamesOfIndexes(t *testing.T) {
	t.Parallel()
	backend := inmem.New(nil)
	t.Cleanup(func() { _ = backend.Close() })
	nothing := controller.ReconcileFunc(func(context.Context, controller.Runtime, controller.Request) error { return nil })
	one, other := indexByText(func(string) {}), indexByText(func(string) {})
	for name, c := range map[string]struct {
		first, second *controller.Index
		fails         bool
	}{"shared": {one, one, false}, "two": {one, other, true}} {
		m := controller.NewManager(nil, &controller.Options{Leases: backend})
		err := m.Register(controller.NewController("items", itemType, c.first).WithReconciler(nothing),
			controller.NewController("lists", listType).WithWatch(itemType, nil, c.second).WithReconciler(nothing))
		if (err != nil) != c.fails {
			t.Errorf("%s: Register returned %v", name, err)
		}
	}
}

// A reader of the cache may change the returned resources. Other readers do not see the change.
func TestReadersOfTheCacheShareNothing(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		res := resourceOf(itemType, "item", "a")
		res.Owner = e.Put(ID(listType, "list"), wrapperspb.String("list")).GetId()
		res.Metadata = map[string]string{"k": "v"}
		stored := e.Write(res)
		if _, err := e.Client.WriteStatus(e.ctx, &resourcepb.WriteStatusRequest{Id: stored.GetId(), Key: "s", Status: &resourcepb.Status{
			ObservedGeneration: stored.GetGeneration(), Conditions: []*resourcepb.Condition{controller.True("C", "R")},
		}}); err != nil {
			t.Fatal(err)
		}
		spoil := func(res *resourcepb.Resource) {
			res.Id.Name, res.Id.Type.Kind, res.Id.Tenancy.Namespace = "x", "x", "x"
			res.Owner.Name, res.Version, res.Generation = "x", "x", "x"
			res.Metadata["k"] = "x"
			res.Status["s"].Conditions[0].Reason, res.Status["s"].ObservedGeneration = "x", "x"
		}
		spoilData := func(res *resourcepb.Resource) {
			spoil(res)
			res.Data.TypeUrl = "x"
			for i := range res.Data.Value {
				res.Data.Value[i] = 0
			}
		}
		spoilObject := func(o *typed.Object[*wrapperspb.StringValue]) {
			res := &resourcepb.Resource{Id: o.ID, Owner: o.Owner, Metadata: o.Metadata, Status: o.Status}
			spoil(res)
			o.Data.Value = "x"
		}
		var reads atomic.Int64
		check := func(rt controller.Runtime, reader string) {
			reads.Add(1)
			o, err := items.Get(rt, ID(itemType, "item"))
			if err != nil || o == nil || o.ID.GetName() != "item" || o.ID.GetType().GetKind() != itemType.GetKind() || o.ID.GetTenancy().GetNamespace() != "default" ||
				o.Owner.GetName() != "list" || o.Metadata["k"] != "v" || o.Status["s"].GetConditions()[0].GetReason() != "R" || o.Data.GetValue() != "a" {
				t.Errorf("after a change of the result of %s the cache has %v, %v", reader, o, err)
			}
		}
		e.Manager(nil, controller.NewController("items", itemType).
			WithQuery("all", func(c controller.Cache, _ ...any) (controller.ResourceIterator, error) {
				return c.ListIterator(itemType, controller.IDIndex, ID(itemType, ""))
			}).
			WithReconciler(controller.Typed(func(_ context.Context, rt controller.Runtime, req controller.TypedRequest[*wrapperspb.StringValue]) error {
				id := ID(itemType, "item")
				spoilObject(req.Object)
				check(rt, "a typed request")
				for name, get := range map[string]func() (*typed.Object[*wrapperspb.StringValue], error){
					"Kind.Get": func() (*typed.Object[*wrapperspb.StringValue], error) { return items.Get(rt, id) },
					"Kind.Owned": func() (*typed.Object[*wrapperspb.StringValue], error) {
						all, err := items.Owned(rt, stored.GetOwner())
						return all[0], err
					},
				} {
					o, err := get()
					if err != nil {
						return err
					}
					spoilObject(o)
					check(rt, name)
				}
				for name, get := range map[string]func() (*resourcepb.Resource, error){
					"Get": func() (*resourcepb.Resource, error) { return rt.Cache.Get(itemType, controller.IDIndex, id) },
					"List": func() (*resourcepb.Resource, error) {
						return first(rt.Cache.List(itemType, controller.OwnerIndex, stored.GetOwner()))
					},
					"Query": func() (*resourcepb.Resource, error) {
						found, err := rt.Cache.Query("all")
						return found.Next(), err
					},
					"Parents": func() (*resourcepb.Resource, error) { return first(rt.Cache.Parents(itemType, controller.IDIndex, id)) },
				} {
					res, err := get()
					if err != nil {
						return err
					}
					spoilData(res)
					check(rt, name)
				}
				return nil
			})))
		e.Manager(nil, controller.NewController("lists", listType).
			WithWatch(itemType, func(_ context.Context, rt controller.Runtime, res *resourcepb.Resource) ([]controller.Request, error) {
				spoil(res)
				check(rt, "a mapper's argument")
				return nil, nil
			}).WithReconciler(controller.ReconcileFunc(nothing)))
		e.Settle()
		e.Write(res) // a change: the mapper is called
		e.Settle()
		if reads.Load() < 8 {
			t.Errorf("%d reads were checked, expected one after each kind of read", reads.Load())
		}
	})
}

func first(all []*resourcepb.Resource, err error) (*resourcepb.Resource, error) {
	if len(all) == 0 {
		return nil, err
	}
	return all[0], err
}
