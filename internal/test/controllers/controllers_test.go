package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/controller/dependency"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// An item refers to a list by its payload. A report of a list has the versions of the list and of its items. A mark of an item has the item's
// version. Reports and marks have the epoch of the tenure that has written them.
var (
	lists   = kind("List")
	items   = kind("Item")
	reports = kind("Report")
	marks   = kind("Mark")

	tenancy = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
)

type object = *typed.Object[*wrapperspb.StringValue]

func kind(name string) controller.Kind[*wrapperspb.StringValue] {
	return controller.NewKind[*wrapperspb.StringValue](&resourcepb.Type{Group: "faults", GroupVersion: "v1", Kind: name})
}

// epochKey is the metadata key of the epoch of a report or a mark.
const epochKey = "epoch"

// controllers returns a controller with one lease, which writes reports, and one with several, which writes marks.
func controllers() []*controller.Controller {
	byList := controller.IndexBy("list", func(o object) []string { return []string{o.Data.GetValue()} })
	return []*controller.Controller{
		controller.NewController("lists", lists.Type).WithWorkers(4).WithBackoff(5*time.Millisecond, time.Second).
			WithWatch(items.Type, dependency.MapDecoded(func(_ context.Context, _ controller.Runtime, item object) ([]controller.Request, error) {
				return []controller.Request{{ID: lists.ID(tenancy, item.Data.GetValue())}}, failSometimes()
			}), byList).
			WithWatch(reports.Type, dependency.MapOwner).
			WithReconciler(controller.Typed(func(ctx context.Context, rt controller.Runtime, req controller.TypedRequest[*wrapperspb.StringValue]) error {
				if req.Object == nil {
					return nil // the reaper deletes the report
				}
				found, err := items.List(rt, "list", req.ID.GetName())
				if err != nil {
					return err
				}
				return record(ctx, rt, reports, req.Object, reportOf(req.Object, found))
			})),
		controller.NewController("items", items.Type).WithPlacement(controller.PlacementSharded(4)).WithBackoff(5*time.Millisecond, time.Second).
			WithWatch(marks.Type, dependency.MapOwner).
			WithReconciler(controller.Typed(func(ctx context.Context, rt controller.Runtime, req controller.TypedRequest[*wrapperspb.StringValue]) error {
				if req.Object == nil {
					return nil
				}
				return record(ctx, rt, marks, req.Object, req.Object.Version)
			})),
	}
}

// record stores the result of a reconcile of an object. It takes some time and ignores the end of its context: only the fence prevents a write of a
// process that was paused here.
func record(ctx context.Context, rt controller.Runtime, k controller.Kind[*wrapperspb.StringValue], o object, text string) error {
	if err := failSometimes(); err != nil {
		return err
	}
	pause(context.WithoutCancel(ctx), rand.N(50*time.Millisecond))
	_, err := k.Apply(context.WithoutCancel(ctx), rt, &typed.Object[*wrapperspb.StringValue]{
		ID: k.ID(tenancy, o.ID.GetName()), Owner: o.ID, Metadata: map[string]string{epochKey: strconv.FormatInt(rt.Epoch, 10)}, Data: wrapperspb.String(text),
	})
	return err
}

// failSometimes returns an error, or panics, in some calls.
func failSometimes() error {
	switch rand.IntN(20) {
	case 0:
		return errors.New("an error of the test")
	case 1:
		panic("a panic of the test")
	}
	return nil
}

// reportOf returns the text of the report of a list.
func reportOf(list object, found []object) string {
	text := []string{list.Version}
	for _, item := range found {
		text = append(text, item.ID.GetName()+"@"+item.Version)
	}
	slices.Sort(text[1:])
	return strings.Join(text, " ")
}

// differences compares the reports and marks of a store with its lists and items.
func differences(stored map[string][]object) (all []string) {
	wantedReports, wantedMarks := map[string]string{}, map[string]string{}
	byList := map[string][]object{}
	for _, item := range stored[items.Type.GetKind()] {
		byList[item.Data.GetValue()] = append(byList[item.Data.GetValue()], item)
		wantedMarks[item.ID.GetUid()] = item.Version
	}
	for _, list := range stored[lists.Type.GetKind()] {
		wantedReports[list.ID.GetUid()] = reportOf(list, byList[list.ID.GetName()])
	}
	for kind, wanted := range map[string]map[string]string{reports.Type.GetKind(): wantedReports, marks.Type.GetKind(): wantedMarks} {
		for _, o := range stored[kind] {
			owner := o.Owner.GetUid()
			if got := o.Data.GetValue(); got != wanted[owner] {
				all = append(all, fmt.Sprintf("the %s %s of %s is %q, expected %q", kind, o.ID.GetName(), owner, got, wanted[owner]))
			}
			delete(wanted, owner)
		}
		for owner := range maps.Keys(wanted) {
			all = append(all, fmt.Sprintf("no %s of %s, expected %q", kind, owner, wanted[owner]))
		}
	}
	return all
}
