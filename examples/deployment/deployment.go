package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/controller/dependency"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// object is a resource of Kubernetes' shape: its payload has the field spec.
type object = *typed.Object[*structpb.Struct]

type request = controller.TypedRequest[*structpb.Struct]

// The three levels of owners: a deployment owns replica sets, and these own pods.
var (
	deployments = kind("apps", "Deployment")
	replicaSets = kind("apps", "ReplicaSet")
	pods        = kind("core", "Pod")
)

func kind(group, name string) controller.Kind[*structpb.Struct] {
	return controller.NewKind[*structpb.Struct](&resourcepb.Type{Group: group, GroupVersion: "v1", Kind: name})
}

// controllers returns the three controllers.
func controllers() []*controller.Controller {
	return []*controller.Controller{
		controller.NewController("deployments", deployments.Type).
			WithWatch(replicaSets.Type, dependency.MapOwner).
			WithReconciler(controller.Typed(rollOut)).WithWorkers(4),
		controller.NewController("replica-sets", replicaSets.Type).
			WithWatch(pods.Type, dependency.MapOwner).
			WithReconciler(controller.Typed(scale)).WithWorkers(4),
		controller.NewController("kubelet", pods.Type).
			WithReconciler(controller.Typed(startPod)).WithWorkers(4),
	}
}

// The keys of statuses, and the condition of a pod that runs.
const (
	deploymentStatus, setStatus, podStatus = "deployments", "replica-sets", "kubelet"
	ready                                  = "Ready"
)

// rollOut makes a deployment own a replica set of its current template, and moves the replicas to it: at most a quarter more than wanted exist, and
// the wanted number stays ready.
func rollOut(ctx context.Context, rt controller.Runtime, req request) error {
	d := req.Object
	if d == nil || controller.Deleting(d) {
		return nil // the reaper deletes all that it owns
	}
	want := replicasOf(d)
	owned, err := replicaSets.Owned(rt, d.ID)
	if err != nil {
		return err
	}
	template := specOf(d).GetFields()["template"]
	name := d.ID.Name + "-" + hash(template)
	current, old, oldSets := object(nil), 0, []object(nil)
	for _, set := range owned {
		if set.ID.Name == name {
			current = set
			continue
		}
		old += replicasOf(set)
		oldSets = append(oldSets, set)
	}
	size := max(0, min(want, want+max(1, want/4)-old)) // a quarter of surge
	if current != nil {
		size = max(size, min(want, replicasOf(current))) // it never shrinks in favour of an older one
	}
	wanted := spec(map[string]*structpb.Value{"replicas": structpb.NewNumberValue(float64(size)), "template": template})
	current, err = replicaSets.Apply(ctx, rt, &typed.Object[*structpb.Struct]{ID: replicaSets.ID(d.ID.Tenancy, name), Owner: d.ID, Data: wanted})
	if err != nil {
		return err
	}
	spare := old + readyOf(current) - want // old replicas that are not needed any more
	for _, set := range oldSets {
		switch n := replicasOf(set); {
		case n == 0:
			err = replicaSets.Delete(ctx, rt, set.ID)
		case spare > 0:
			keep := max(0, n-spare)
			spare -= n - keep
			set.Data = proto.CloneOf(set.Data)
			specOf(set).Fields["replicas"] = structpb.NewNumberValue(float64(keep))
			_, err = replicaSets.Apply(ctx, rt, set)
		}
		if err != nil {
			return err
		}
	}
	if len(oldSets) == 0 && readyOf(current) == want {
		return deployments.SetStatus(ctx, rt, d, deploymentStatus, controller.True("Complete", "AllReplicasReady"))
	}
	return deployments.SetStatus(ctx, rt, d, deploymentStatus, controller.False("Complete", "RollingOut"))
}

// scale makes a replica set own the wanted number of pods.
func scale(ctx context.Context, rt controller.Runtime, req request) error {
	set := req.Object
	if set == nil || controller.Deleting(set) {
		return nil
	}
	owned, err := pods.Owned(rt, set.ID)
	if err != nil {
		return err
	}
	want := replicasOf(set)
	taken := map[string]bool{}
	running := 0
	for i, pod := range owned {
		if taken[pod.ID.Name] = true; i >= want {
			if err := pods.Delete(ctx, rt, pod.ID); err != nil {
				return err
			}
		} else if isReady(pod) {
			running++
		}
	}
	for i, missing := 0, want-len(owned); missing > 0; i++ {
		name := fmt.Sprintf("%s-%d", set.ID.Name, i)
		if taken[name] {
			continue
		}
		template := specOf(set).GetFields()["template"].GetStructValue()
		pod := &typed.Object[*structpb.Struct]{ID: pods.ID(set.ID.Tenancy, name), Owner: set.ID, Data: spec(template.GetFields()["spec"].GetStructValue().GetFields())}
		if _, err := pods.Apply(ctx, rt, pod); err != nil {
			return err
		}
		missing--
	}
	count := controller.True(ready, "Counted")
	count.Message = strconv.Itoa(running)
	return replicaSets.SetStatus(ctx, rt, set, setStatus, count)
}

// startPod stands for a node: it reports each pod as ready.
func startPod(ctx context.Context, rt controller.Runtime, req request) error {
	if req.Object == nil || controller.Deleting(req.Object) {
		return nil
	}
	return pods.SetStatus(ctx, rt, req.Object, podStatus, controller.True(ready, "Started"))
}

// specOf returns the specification of an object.
func specOf(o object) *structpb.Struct { return o.Data.GetFields()["spec"].GetStructValue() }

// spec returns a payload with a specification.
func spec(fields map[string]*structpb.Value) *structpb.Struct {
	return &structpb.Struct{Fields: map[string]*structpb.Value{"spec": structpb.NewStructValue(&structpb.Struct{Fields: fields})}}
}

// replicasOf returns the wanted number of replicas, 1 if the specification has none.
func replicasOf(o object) int {
	n, ok := specOf(o).GetFields()["replicas"]
	if !ok {
		return 1
	}
	return int(n.GetNumberValue())
}

// readyOf returns the number of ready pods that the status of a replica set reports.
func readyOf(set object) int {
	n := 0
	for _, c := range set.Status[setStatus].GetConditions() {
		n, _ = strconv.Atoi(c.GetMessage())
	}
	return min(n, replicasOf(set)) // pods beyond the wanted number are about to be deleted
}

func isReady(pod object) bool {
	return slices.ContainsFunc(pod.Status[podStatus].GetConditions(), func(c *resourcepb.Condition) bool {
		return c.GetType() == ready && c.GetState() == resourcepb.Condition_STATE_TRUE
	})
}

// hash returns a short name of a template.
func hash(template *structpb.Value) string {
	encoded, _ := proto.MarshalOptions{Deterministic: true}.Marshal(template)
	sum := sha256.Sum256(encoded)
	return fmt.Sprintf("%x", sum[:5])
}
