package main

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/controller/controllertest"
	"github.com/ashlar-dev/storage/resourcepb"
)

// shop has a deployment, and counts its pods.
type shop struct {
	*controllertest.Env
	id *resourcepb.ID
}

func (s *shop) put(replicas float64, image string) {
	template := spec(map[string]*structpb.Value{"image": structpb.NewStringValue(image)})
	s.Put(s.id, spec(map[string]*structpb.Value{"replicas": structpb.NewNumberValue(replicas), "template": structpb.NewStructValue(template)}))
}

// pods returns the number of pods by image.
func (s *shop) pods() map[string]int {
	images := map[string]int{}
	for _, res := range s.List(pods.Type) {
		var data structpb.Struct
		_ = res.GetData().UnmarshalTo(&data)
		images[data.GetFields()["spec"].GetStructValue().GetFields()["image"].GetStringValue()]++
	}
	return images
}

func (s *shop) expect(image string, n int) {
	s.T.Helper()
	time.Sleep(10 * time.Second) // until calls that conflicted with others have been repeated
	s.Settle()
	if all := s.pods(); len(all) != min(n, 1) || all[image] != n {
		s.T.Fatalf("pods by image: %v, expected %d of %q", all, n, image)
	}
	for _, d := range s.List(deployments.Type) {
		if c := d.GetStatus()[deploymentStatus].GetConditions(); len(c) != 1 || c[0].GetState() != resourcepb.Condition_STATE_TRUE {
			s.T.Fatalf("status %v, expected a complete deployment", d.GetStatus())
		}
	}
}

func TestDeployment(t *testing.T) {
	t.Parallel()
	controllertest.Run(t, nil, func(e *controllertest.Env) {
		s := &shop{e, controllertest.ID(deployments.Type, "web")}
		first := e.Manager(&controller.Options{Name: "first"}, controllers()...)
		s.put(8, "v1")
		s.expect("v1", 8)
		s.put(3, "v1")
		s.expect("v1", 3)
		s.put(8, "v2")
		s.expect("v2", 8)
		if n := len(e.List(replicaSets.Type)); n != 1 {
			e.T.Errorf("%d replica sets after the roll-out, expected 1", n)
		}
		e.Manager(&controller.Options{Name: "second"}, controllers()...)
		first.Kill()
		s.put(5, "v3")
		time.Sleep(time.Minute) // until the leases of the first process have ended
		s.expect("v3", 5)
		e.Delete(s.id)
		time.Sleep(time.Minute)
		if all := s.pods(); len(all) != 0 {
			e.T.Errorf("pods after the deletion of the deployment: %v", all)
		}
	})
}
