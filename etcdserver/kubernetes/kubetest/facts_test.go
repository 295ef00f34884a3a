//go:build integration

package kubetest

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
)

// eventually waits for a condition.
func eventually(t *testing.T, what string, done func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := done()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, err)
		}
	}
}

// watched holds informers of several kinds.
type watched struct {
	factory informers.SharedInformerFactory
	maps    cache.SharedIndexInformer
}

// watch starts informers, which end with the test.
func watch(t *testing.T, s *apiserver) *watched {
	t.Helper()
	config := rest.CopyConfig(s.Config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &transport{RoundTripper: next, tally: s.tally} })
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{factory: informers.NewSharedInformerFactory(clients, 0)}
	w.maps = w.factory.Core().V1().ConfigMaps().Informer()
	w.factory.Core().V1().Namespaces().Informer()
	ctx, cancel := context.WithCancel(context.Background())
	w.factory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		w.factory.Shutdown()
	})
	return w
}

// same returns an error unless the informer matches a consistent list.
func (w *watched) same(ctx context.Context, s *apiserver) error {
	all, err := s.clients.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	held := w.maps.GetStore().List()
	if len(held) != len(all.Items) {
		return fmt.Errorf("the informer holds %d config maps, want %d", len(held), len(all.Items))
	}
	for _, want := range all.Items {
		got, ok, err := w.maps.GetStore().GetByKey(want.Namespace + "/" + want.Name)
		if err != nil || !ok {
			return fmt.Errorf("the informer does not hold %s/%s: %v", want.Namespace, want.Name, err)
		}
		if !equality.Semantic.DeepEqual(got, &want) {
			return fmt.Errorf("the informer holds a different %s/%s: version %s, want %s",
				want.Namespace, want.Name, got.(*corev1.ConfigMap).ResourceVersion, want.ResourceVersion)
		}
	}
	return nil
}

// conflictBackoff is the retry policy of clients with conflicts.
var conflictBackoff = wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1, Jitter: 1, Steps: 1000}

// churn creates, updates and deletes config maps with several concurrent clients. All increment the same number too, to cause conflicts.
func churn(ctx context.Context, servers []*apiserver, round string, clients, each int) error {
	group, ctx := errgroup.WithContext(ctx)
	for c := range clients {
		s := servers[c%len(servers)]
		maps := s.clients.CoreV1().ConfigMaps("default")
		group.Go(func() error {
			for i := range each {
				name := fmt.Sprintf("churn-%s-%d-%d", round, c, i)
				if _, err := maps.Create(ctx, configMap(name, "0"), metav1.CreateOptions{}); err != nil {
					return err
				}
				s.tally.add("creations", 1)
				if err := retry.RetryOnConflict(conflictBackoff, func() error {
					shared, err := maps.Get(ctx, "shared", metav1.GetOptions{})
					if err != nil {
						return err
					}
					shared.Data["writes"] += "."
					_, err = maps.Update(ctx, shared, metav1.UpdateOptions{})
					if apierrors.IsConflict(err) {
						s.tally.add("conflicts", 1)
					}
					return err
				}); err != nil {
					return err
				}
				s.tally.add("updates", 1)
				if i%3 == 0 {
					if err := maps.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
						return err
					}
					s.tally.add("deletions", 1)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func configMap(name, writes string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"writes": writes}}
}

// create creates an object that may already exist.
func create(t *testing.T, s *apiserver, object *corev1.ConfigMap) {
	t.Helper()
	_, err := s.clients.CoreV1().ConfigMaps("default").Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// createWithRetries writes a value to an object, retrying after errors, and reads it back.
func createWithRetries(ctx context.Context, s *apiserver, name, writes string) error {
	maps := s.clients.CoreV1().ConfigMaps("default")
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		if _, err := maps.Create(ctx, configMap(name, writes), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			last = err
			return false, nil
		}
		var stored *corev1.ConfigMap
		if stored, last = maps.Get(ctx, name, metav1.GetOptions{}); last != nil {
			return false, nil
		}
		if stored.Data["writes"] != writes {
			return false, fmt.Errorf("%s holds %q, want %q", name, stored.Data["writes"], writes)
		}
		return true, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("%w, at last: %w", err, last)
	}
	return err
}

// get reads a config map.
func get(t *testing.T, s *apiserver, name string) *corev1.ConfigMap {
	t.Helper()
	object, err := s.clients.CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object
}

// listed returns the version of a list.
func listed(t *testing.T, s *apiserver) string {
	t.Helper()
	all, err := s.clients.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return all.ResourceVersion
}
