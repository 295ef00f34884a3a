//go:build integration

package kubetest

import (
	"context"
	"fmt"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const writers, rounds = 4, 20

// TestChurn runs concurrent clients of a kube-apiserver that create, update and delete, while history is compacted. No write is lost. In
// the end an informer matches a consistent list, and every cache matches the storage.
func TestChurn(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startAPIServer(t, startEtcdServer(t, newTally(t), url(t)))
			create(t, s, configMap("shared", ""))
			w := watch(t, s)
			begin := listed(t, s)
			if err := churn(t.Context(), []*apiserver{s}, "first", writers, rounds); err != nil {
				t.Fatal(err)
			}
			if n := len(get(t, s, "shared").Data["writes"]); n != writers*rounds {
				t.Errorf("the shared object was written %d times, want %d", n, writers*rounds)
			}
			eventually(t, "the informer", func() error { return w.same(t.Context(), s) })
			awaitCompaction(t, s, begin)
			if err := churn(t.Context(), []*apiserver{s}, "second", writers, rounds); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the informer after a compaction", func() error { return w.same(t.Context(), s) })
			checkCaches(t, s)
		})
	}
}

// awaitCompaction waits until kube-apiserver has compacted the history before a version.
func awaitCompaction(t *testing.T, s *apiserver, version string) {
	t.Helper()
	eventually(t, "compaction", func() error {
		_, err := s.clients.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{
			ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact, Limit: 1})
		if apierrors.IsResourceExpired(err) {
			return nil
		}
		return fmt.Errorf("the list as of version %s: %v, want an error because the version is compacted", version, err)
	})
}

// checkCaches waits until the server has compared its caches with the storage, and fails if they differed.
func checkCaches(t *testing.T, s *apiserver) {
	t.Helper()
	var before int
	eventually(t, "checks of caches", func() error {
		good, bad := s.inconsistencies(t)
		if bad > 0 {
			t.Fatalf("%d caches differed from the storage", bad)
		}
		if before == 0 {
			before = good + 1
		}
		if good < before+20 {
			return fmt.Errorf("%d caches were compared", good)
		}
		s.tally.add("caches equal to the storage", good)
		s.tally.add("caches that differed", bad)
		s.tally.add("caches filled from lists", s.relists(t))
		return nil
	})
}

// TestRestart stops the server of etcd's API while clients of a kube-apiserver write, and also the database if it is a server.
func TestRestart(t *testing.T) {
	for name, start := range restartable {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, restart := start(t)
			f := startEtcdServer(t, newTally(t), url)
			s := startAPIServer(t, f)
			create(t, s, configMap("shared", ""))
			w := watch(t, s)
			for i := range 3 {
				done, stop := make(chan error, 1), make(chan struct{})
				go func() { done <- writeUntil(t.Context(), s, i, stop) }()
				f.restart(t)
				if restart != nil {
					restart()
					f.tally.add("restarts of the database", 1)
				}
				close(stop)
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				eventually(t, "the informer after a restart", func() error { return w.same(t.Context(), s) })
			}
			checkCaches(t, s)
		})
	}
}

// TestTwoServers runs two kube-apiservers, each with its own server of etcd's API, on one Postgres: either server can continue
// lists that the other began, and a server that was frozen for a while catches up.
func TestTwoServers(t *testing.T) {
	t.Parallel()
	url := databases["postgres"](t)
	var servers []*apiserver
	var informers []*watched
	y := newTally(t)
	for range 2 {
		s := startAPIServer(t, startEtcdServer(t, y, url))
		servers = append(servers, s)
	}
	create(t, servers[0], configMap("shared", ""))
	for _, s := range servers {
		informers = append(informers, watch(t, s))
	}
	if err := churn(t.Context(), servers, "both", writers, rounds); err != nil {
		t.Fatal(err)
	}
	handOver(t, servers)

	y.add("servers stopped for a while", 1)
	if err := servers[1].process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := churn(t.Context(), servers[:1], "one", writers, rounds); err != nil {
		t.Fatal(err)
	}
	if err := servers[1].process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := churn(t.Context(), servers, "again", writers, rounds); err != nil {
		t.Fatal(err)
	}
	if n := len(get(t, servers[1], "shared").Data["writes"]); n != 3*writers*rounds {
		t.Errorf("the shared object was written %d times, want %d", n, 3*writers*rounds)
	}
	for i, w := range informers {
		for _, s := range servers {
			eventually(t, fmt.Sprint("informer ", i), func() error { return w.same(t.Context(), s) })
		}
	}
	for _, s := range servers {
		checkCaches(t, s)
	}
}

// TestRelist separates one of two kube-apiservers from the storage until the history that it needs is compacted: it fills its caches anew,
// and its informers match a consistent list.
func TestRelist(t *testing.T) {
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, y := url(t), newTally(t)
			away := startEtcdServer(t, y, store)
			s, other := startAPIServer(t, away), startAPIServer(t, startEtcdServer(t, y, store))
			create(t, other, configMap("shared", ""))
			w := watch(t, s)
			if err := churn(t.Context(), []*apiserver{s, other}, "both", writers, rounds); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the informer", func() error { return w.same(t.Context(), s) })
			filled := s.relists(t)

			away.stop()
			if err := churn(t.Context(), []*apiserver{other}, "one", writers, rounds); err != nil {
				t.Fatal(err)
			}
			awaitCompaction(t, other, listed(t, other))
			away.start(t)
			eventually(t, "the informer after its server's caches were filled anew", func() error { return w.same(t.Context(), s) })
			eventually(t, "the server's caches are filled anew", func() error {
				if now := s.relists(t); now <= filled {
					return fmt.Errorf("caches were filled %d times, as before", now)
				}
				return nil
			})
			checkCaches(t, s)
			checkCaches(t, other)
		})
	}
}

// handOver reads a list in pages from all servers in turn, while objects are written. The list must have the state at its beginning.
func handOver(t *testing.T, servers []*apiserver) {
	t.Helper()
	var pages []corev1.ConfigMap
	options := metav1.ListOptions{Limit: 11}
	want, err := servers[0].clients.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for n := 0; n == 0 || options.Continue != ""; n++ {
		page, err := servers[n%len(servers)].clients.CoreV1().ConfigMaps("default").List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, page.Items...)
		options.Continue = page.Continue
		if options.Continue != "" {
			servers[0].tally.add("continue tokens taken to the other server", 1)
		}
		create(t, servers[0], configMap(fmt.Sprint("late-", n), ""))
	}
	if !equality.Semantic.DeepEqual(byName(pages), byName(want.Items)) {
		t.Errorf("pages hold %d objects, want the %d of a list before them", len(pages), len(want.Items))
	}
}

func byName(all []corev1.ConfigMap) map[string]corev1.ConfigMap {
	named := map[string]corev1.ConfigMap{}
	for _, one := range all {
		named[one.Name] = one
	}
	return named
}

// writeUntil writes objects one after the other, retrying after errors, until stop is closed and it has written some.
func writeUntil(ctx context.Context, s *apiserver, round int, stop <-chan struct{}) error {
	for i := 0; ; i++ {
		select {
		case <-stop:
			if i >= rounds {
				return nil
			}
		default:
		}
		if err := createWithRetries(ctx, s, fmt.Sprintf("persistent-%d-%d", round, i), fmt.Sprint(i)); err != nil {
			return err
		}
		s.tally.add("creations while it restarts", 1)
	}
}
