package main

import (
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/controller/controllertest"
)

func Example() {
	main()
	// Output:
	// 3 replicas, 3 pods
	// 1 replicas, 1 pods
}

func TestTakeOver(t *testing.T) {
	controllertest.Run(t, nil, func(e *controllertest.Env) {
		first := e.Manager(&controller.Options{Name: "first"}, replicaSets())
		e.Put(controllertest.ID(setType, "web"), wrapperspb.UInt32(3))
		e.Settle()
		e.Manager(&controller.Options{Name: "second"}, replicaSets())
		first.Kill()
		e.Put(controllertest.ID(setType, "web"), wrapperspb.UInt32(5))
		time.Sleep(time.Minute) // the lease of the first process ends; this takes no real time
		if n := len(e.List(podType)); n != 5 {
			t.Errorf("%d pods, expected 5", n)
		}
	})
}
