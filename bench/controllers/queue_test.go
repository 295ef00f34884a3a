package controllers

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/queue"
)

// BenchmarkQueue measures a step of each queue: add a key, take it, and finish its run.
func BenchmarkQueue(b *testing.B) {
	const keys, steps = 1000, 300_000
	run := func(name string, step func(i int)) {
		b.Run(name, func(b *testing.B) {
			began := cpu()
			for i := range b.N * steps {
				step(i % keys)
			}
			b.ReportMetric(float64(cpu()-began)/float64(b.N*steps), "cpu-ns/step")
		})
	}
	ours := queue.New[key.Key](queue.Options{})
	defer ours.Close()
	own := make([]key.Key, keys)
	theirs := make([]reconcile.Request, keys)
	for i := range keys {
		own[i] = key.Key{Group: "bench", Kind: "Thing", Partition: "default", Namespace: "default", Name: name(i)}
		theirs[i] = reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name(i)}}
	}
	run("ashlar", func(i int) {
		ours.Add(own[i])
		k, _ := ours.Get()
		ours.Done(k, queue.Outcome{})
	})
	for name, q := range map[string]workqueue.TypedRateLimitingInterface[reconcile.Request]{
		"client-go":          workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()),
		"controller-runtime": priorityqueue.New[reconcile.Request]("bench"),
	} {
		defer q.ShutDown()
		run(name, func(i int) {
			q.Add(theirs[i])
			k, _ := q.Get()
			q.Forget(k)
			q.Done(k)
		})
	}
}
