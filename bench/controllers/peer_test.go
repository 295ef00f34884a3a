package controllers

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

func TestMain(m *testing.M) {
	_ = os.Setenv("KUBE_FEATURE_WatchListClient", "false") // a fake watch has no initial events
	log.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// peer is controller-runtime over an informer of client-go, with a fake list and watch. The list decodes its objects, as a client does.
type peer struct {
	encoded [][]byte
	version int
}

func newPeer(b *testing.B) *peer {
	p := &peer{version: 1}
	for i := range *objects {
		object := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: name(i), Namespace: "default", UID: "6f0ee0d5-6e61-4d3c-a6ee-70b1b2a9fb0b", ResourceVersion: "1", Generation: 1,
			},
			Data: map[string]string{"payload": payload(i)},
		}
		encoded, err := object.Marshal()
		if err != nil {
			b.Fatal(err)
		}
		p.encoded = append(p.encoded, encoded)
	}
	return p
}

func (p *peer) decode(i int) *corev1.ConfigMap {
	var object corev1.ConfigMap
	if err := object.Unmarshal(p.encoded[i]); err != nil {
		panic(err)
	}
	return &object
}

// run implements side.
func (p *peer) run(b *testing.B, reconciled func()) (touch func(i int), stop func()) {
	events := watch.NewFake()
	informer := cache.NewSharedIndexInformer(&cache.ListWatch{
		ListFunc: func(metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
			for i := range p.encoded {
				list.Items = append(list.Items, *p.decode(i))
			}
			return list, nil
		},
		WatchFunc: func(metav1.ListOptions) (watch.Interface, error) { return events, nil },
	}, &corev1.ConfigMap{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	skip := true
	c, err := controller.NewUnmanaged("things", controller.Options{
		SkipNameValidation: &skip,
		Reconciler: reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
			found, exists, err := informer.GetIndexer().GetByKey(req.String())
			if err != nil || !exists {
				return reconcile.Result{}, fmt.Errorf("%v: %v, %w", req, exists, err)
			}
			if found.(*corev1.ConfigMap).DeepCopy().Data["payload"] == "" { // as its cached client copies
				return reconcile.Result{}, fmt.Errorf("%v has no payload", req)
			}
			reconciled()
			return reconcile.Result{}, nil
		}),
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := c.Watch(&source.Informer{Informer: informer, Handler: &handler.EnqueueRequestForObject{}}); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{}, 2)
	go func() {
		informer.RunWithContext(ctx)
		ended <- struct{}{}
	}()
	go func() {
		_ = c.Start(ctx)
		ended <- struct{}{}
	}()
	return func(i int) {
			object := p.decode(i)
			p.version++
			object.ResourceVersion = fmt.Sprint(p.version)
			events.Modify(object)
		}, func() {
			cancel()
			<-ended
			<-ended
		}
}
