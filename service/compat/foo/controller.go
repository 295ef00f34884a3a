// Package foo has a controller as Consul's documentation describes it, ported to this module: only its imports have changed. docs/controllers.md
// shows them.
package foo

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/controller"
	index "github.com/ashlar-dev/storage/controller/consul"
	indexers "github.com/ashlar-dev/storage/controller/consul"
	resource "github.com/ashlar-dev/storage/controller/consul"
	"github.com/ashlar-dev/storage/controller/dependency"
	pbresource "github.com/ashlar-dev/storage/resourcepb"
	pbfoo "github.com/ashlar-dev/storage/service/compat/foopb"
)

// RegisterControllers adds the controllers of the package to a manager.
func RegisterControllers(mgr *controller.Manager) {
	mgr.Register(barController())
}

// barController reconciles bars, and each bar again when the foo that it names has changed.
func barController() *controller.Controller {
	fooIndex := indexers.DecodedSingleIndexer("foo", index.ReferenceOrIDFromArgs, fooReferenceFromBar)
	return controller.NewController("bar", pbfoo.BarType, fooIndex).
		WithWatch(pbfoo.FooType, dependency.CacheListMapper(pbfoo.BarType, fooIndex.Name())).
		WithReconciler(barReconciler{})
}

func fooReferenceFromBar(r *resource.DecodedResource[*pbfoo.Bar]) (bool, []byte, error) {
	return true, index.IndexFromRefOrID(fooID(r.Id, r.Data)), nil
}

func fooID(id *pbresource.ID, bar *pbfoo.Bar) *pbresource.ID {
	return &pbresource.ID{Type: pbfoo.FooType, Tenancy: id.Tenancy, Name: bar.FooName}
}

const statusKey = "consul.io/bar"

type barReconciler struct{}

func (barReconciler) Reconcile(ctx context.Context, rt controller.Runtime, req controller.Request) error {
	rsp, err := rt.Client.Read(ctx, &pbresource.ReadRequest{Id: req.ID})
	switch {
	case status.Code(err) == codes.NotFound:
		return nil
	case err != nil:
		return err
	}
	var bar pbfoo.Bar
	if err := rsp.Resource.Data.UnmarshalTo(&bar); err != nil {
		return err
	}
	rt.Logger.Debug("reconciling a bar", "baz", bar.Baz)

	healthy := &pbresource.Condition{Type: "Healthy", State: pbresource.Condition_STATE_FALSE, Reason: "FOO_NOT_READY"}
	foo, err := rt.Cache.Get(pbfoo.FooType, "id", fooID(rsp.Resource.Id, &bar))
	if err != nil {
		return err
	}
	if foo != nil {
		decoded, err := resource.Decode[*pbfoo.Foo](foo)
		if err != nil {
			return err
		}
		if decoded.Data.IsReady {
			healthy.State, healthy.Reason = pbresource.Condition_STATE_TRUE, "OK"
		}
	}
	resolved := &pbresource.Condition{Type: "ResolvedRefs", State: pbresource.Condition_STATE_TRUE, Reason: "OK"}
	if _, err := rt.Client.Read(ctx, &pbresource.ReadRequest{Id: bar.Qux}); status.Code(err) == codes.NotFound {
		resolved.State, resolved.Reason, resolved.Resource = pbresource.Condition_STATE_FALSE, "INVALID_REFERENCE", resource.Reference(bar.Qux, "")
	} else if err != nil {
		return err
	}
	newStatus := &pbresource.Status{
		ObservedGeneration: rsp.Resource.Generation,
		Conditions:         []*pbresource.Condition{healthy, resolved},
	}
	if !resource.EqualStatus(rsp.Resource.Status[statusKey], newStatus, false) {
		_, err := rt.Client.WriteStatus(ctx, &pbresource.WriteStatusRequest{Id: rsp.Resource.Id, Key: statusKey, Status: newStatus})
		if err != nil {
			return err
		}
	}
	if resolved.State == pbresource.Condition_STATE_FALSE {
		return controller.RequeueAfter(100 * time.Millisecond)
	}
	return nil
}
