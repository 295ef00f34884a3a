package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/retry"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcdserver/kubernetes"
)

var things = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}

// thingDefinition defines the kind that the tests use.
func thingDefinition() *apiextensionsv1.CustomResourceDefinition {
	open := true
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: things.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Singular: "thing", Kind: "Thing", ListKind: "ThingList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: things.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &open},
				},
			}},
		},
	}
}

// serve runs an API server on a store until the test ends, or until stop is called.
func serve(t *testing.T, url string) (client *rest.Config, stop func()) {
	t.Helper()
	backend, err := storage.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	store, err := kubernetes.New(backend, nil)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server, client, err := newServer(store, listener)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.PrepareRun().RunWithContext(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		store.Close()
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	probe, err := discovery.NewDiscoveryClientForConfig(client)
	if err != nil {
		t.Fatal(err)
	}
	// A server that is stopped while its hooks start ends the whole process.
	eventually(t, "the server to be ready", func() error {
		return probe.RESTClient().Get().AbsPath("/readyz/poststarthook/crd-informer-synced").Do(t.Context()).Error()
	})
	return rest.CopyConfig(client), stop
}

// eventually waits for a condition.
func eventually(t *testing.T, what string, done func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
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

// define creates the definition if it is missing, and waits until things are served.
func define(t *testing.T, client *rest.Config) dynamic.NamespaceableResourceInterface {
	t.Helper()
	definitions := clientset.NewForConfigOrDie(client).ApiextensionsV1().CustomResourceDefinitions()
	eventually(t, "definition", func() error {
		if _, err := definitions.Create(t.Context(), thingDefinition(), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	})
	resource := dynamic.NewForConfigOrDie(client).Resource(things)
	eventually(t, "things", func() error {
		_, err := resource.List(t.Context(), metav1.ListOptions{})
		return err
	})
	return resource
}

func thing(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": name, "namespace": "default"}, "writes": int64(0),
	}}
}

// conflictBackoff is the retry policy of clients with conflicts.
var conflictBackoff = wait.Backoff{Duration: 20 * time.Millisecond, Factor: 1, Jitter: 1, Steps: 1000}

// churn creates, updates and deletes things with several concurrent clients, which count their rounds in a shared object.
func churn(ctx context.Context, client dynamic.NamespaceableResourceInterface, clients, each int) error {
	group, ctx := errgroup.WithContext(ctx)
	for c := range clients {
		group.Go(func() error {
			here := client.Namespace("default")
			for i := range each {
				name := fmt.Sprintf("thing-%d-%d", c, i)
				if _, err := here.Create(ctx, thing(name), metav1.CreateOptions{}); err != nil {
					return err
				}
				// All clients update the same object, to cause conflicts.
				if err := retry.RetryOnConflict(conflictBackoff, func() error { return count(ctx, here, "shared") }); err != nil {
					return err
				}
				if i%3 == 0 {
					if err := here.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
						return err
					}
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// count increments a number in an object.
func count(ctx context.Context, client dynamic.ResourceInterface, name string) error {
	object, err := client.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	object.Object["writes"] = object.Object["writes"].(int64) + 1
	_, err = client.Update(ctx, object, metav1.UpdateOptions{})
	return err
}

// urls are the stores for the tests. The integration tests add databases that need a server.
var urls = map[string]func(t *testing.T) string{
	"memory": func(t *testing.T) string { return "mem://" + t.Name() },
	"sqlite": func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "kube.db") },
}

// TestInformers runs two servers on one store: informers of both must match a consistent list, either server can continue a list
// that the other began, and a restarted server finds all writes.
func TestInformers(t *testing.T) {
	t.Parallel()
	for name, url := range urls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := url(t)
			first, stopFirst := serve(t, store)
			second, _ := serve(t, store)
			writer, reader := define(t, first), define(t, second)
			if _, err := writer.Namespace("default").Create(t.Context(), thing("shared"), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			watching, stopWatching := context.WithCancel(t.Context())
			defer stopWatching()
			var informers []dynamicinformer.DynamicSharedInformerFactory
			for _, client := range []*rest.Config{first, second} {
				f := dynamicinformer.NewDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(client), 0)
				f.ForResource(things).Informer()
				f.Start(watching.Done())
				informers = append(informers, f)
			}
			const clients, each = 4, 15
			if err := churn(t.Context(), writer, clients, each); err != nil {
				t.Fatal(err)
			}
			want := list(t, reader)
			if n := len(want); n != clients*each*2/3+1 {
				t.Errorf("%d things remain, want %d", n, clients*each*2/3+1)
			}
			if writes := want["shared"].Object["writes"]; writes != int64(clients*each) {
				t.Errorf("the shared object was written %v times, want %d", writes, clients*each)
			}
			for i, f := range informers {
				eventually(t, fmt.Sprint("informer ", i), func() error { return same(f, want) })
			}
			stopWatching()
			for _, f := range informers {
				f.Shutdown()
			}
			handOver(t, writer, reader, want)
			stopFirst()
			third, _ := serve(t, store)
			if got := list(t, define(t, third)); !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("after a restart there are %d things, want the %d from before", len(got), len(want))
			}
		})
	}
}

// TestDiscovery finds the served kinds like kubectl, which only gets the name of a kind.
func TestDiscovery(t *testing.T) {
	t.Parallel()
	client, _ := serve(t, urls["memory"](t))
	define(t, client)
	groups := discovery.NewDiscoveryClientForConfigOrDie(client)
	eventually(t, "discovery of the served kinds", func() error {
		served, err := restmapper.GetAPIGroupResources(groups)
		if err != nil {
			return err
		}
		found, err := restmapper.NewDiscoveryRESTMapper(served).ResourceFor(schema.GroupVersionResource{Resource: "thing"})
		if err == nil && found != things {
			t.Fatalf("things are served as %v, want %v", found, things)
		}
		return err
	})
}

// list returns all things, by a consistent list.
func list(t *testing.T, client dynamic.NamespaceableResourceInterface) map[string]unstructured.Unstructured {
	t.Helper()
	all, err := client.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return byName(all.Items)
}

func byName(items []unstructured.Unstructured) map[string]unstructured.Unstructured {
	named := map[string]unstructured.Unstructured{}
	for _, item := range items {
		named[item.GetName()] = item
	}
	return named
}

// same returns an error unless an informer contains the wanted things.
func same(f dynamicinformer.DynamicSharedInformerFactory, want map[string]unstructured.Unstructured) error {
	var items []unstructured.Unstructured
	for _, object := range f.ForResource(things).Informer().GetStore().List() {
		items = append(items, *object.(*unstructured.Unstructured))
	}
	if got := byName(items); !equality.Semantic.DeepEqual(got, want) {
		return fmt.Errorf("holds %d things that differ from the %d stored", len(got), len(want))
	}
	return nil
}

// handOver reads a list in pages from two servers in turn, while things are written.
func handOver(
	t *testing.T, first, second dynamic.NamespaceableResourceInterface, want map[string]unstructured.Unstructured,
) {
	t.Helper()
	var items []unstructured.Unstructured
	options := metav1.ListOptions{Limit: 7}
	for page := 0; page == 0 || options.Continue != ""; page++ {
		client := first
		if page%2 == 1 {
			client = second
		}
		part, err := client.List(t.Context(), options)
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, part.Items...)
		options.Continue = part.GetContinue()
		late := fmt.Sprintf("late-%03d", page) // not part of the list, whose first page determines its revision
		if _, err := second.Namespace("default").Create(t.Context(), thing(late), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := second.Namespace("default").Delete(context.Background(), late, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		}()
	}
	if got := byName(items); !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("pages of two servers hold %d things, want the %d stored when the list began", len(got), len(want))
	}
}
