package kubernetes

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	kube "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
)

// Closing a store before its storage is released, or a backend before its store, ends the watches, with and without writes. No watch hangs.
func TestWatchesEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*Store, storage.Backend){
		"with the store":   func(s *Store, _ storage.Backend) { s.Close() },
		"with the backend": func(_ *Store, b storage.Backend) { _ = b.Close() },
	} {
		for _, writers := range []int{0, 4} {
			t.Run(fmt.Sprintf("%s under %d writers", name, writers), func(t *testing.T) {
				t.Parallel()
				watchesEnd(t, writers, end)
			})
		}
	}
}

func watchesEnd(t *testing.T, writers int, end func(*Store, storage.Backend)) {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	backend := inmem.New(nil)
	defer backend.Close()
	store, err := New(backend, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	all, release, err := store.Interface(storagebackend.NewDefaultConfig("", codec).ForResource(pods), newPod, newPodList, podsPrefix)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	create := func(name string) error {
		pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		return all.Create(ctx, podsPrefix+"ns/"+name, pod, nil, 0)
	}
	watches := make([]watch.Interface, 100)
	for i := range watches {
		if watches[i], err = all.Watch(ctx, podsPrefix, kube.ListOptions{Predicate: kube.Everything, Recursive: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := create("first"); err != nil {
		t.Fatal(err)
	}
	for i, w := range watches {
		if first := <-w.ResultChan(); first.Type != watch.Added {
			t.Fatalf("watch %d begins with %v", i, first)
		}
	}
	var group sync.WaitGroup
	defer group.Wait()
	for i := range writers {
		group.Go(func() {
			for n := range 100 {
				if create(fmt.Sprintf("pod-%d-%d", i, n)) != nil {
					return // the backend is closed
				}
			}
		})
	}
	end(store, backend)
	for i, w := range watches {
		for range w.ResultChan() { // earlier events
		}
		if ctx.Err() != nil {
			t.Fatalf("watch %d did not end", i)
		}
	}
}
