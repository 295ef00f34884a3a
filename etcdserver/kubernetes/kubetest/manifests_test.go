//go:build integration

package kubetest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// manifestsVariable names a directory of manifests to apply instead of the examples in testdata.
const manifestsVariable = "ASHLAR_KUBETEST_MANIFESTS"

// TestManifests applies manifests to a kube-apiserver twice: the second time changes nothing. Another kube-apiserver, on the reopened
// store, has the same objects.
func TestManifests(t *testing.T) {
	objects := manifests(t)
	for name, url := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, y := url(t), newTally(t)
			first := newApplier(t, startAPIServer(t, startEtcdServer(t, y, store)), objects)
			applied := make([]*unstructured.Unstructured, len(objects))
			for i, object := range objects {
				first.prepare(t, object)
				applied[i] = first.apply(t, object)
			}
			for i, object := range objects {
				if again := first.apply(t, object); !same(again, applied[i]) {
					t.Errorf("%s %s differs after the second apply, want no change", object.GetKind(), object.GetName())
				}
			}
			second := newApplier(t, startAPIServer(t, startEtcdServer(t, y, store)), objects)
			for _, want := range applied {
				got, err := second.resource(t, want).Get(t.Context(), want.GetName(), metav1.GetOptions{})
				if err != nil {
					t.Errorf("%s %s: %v", want.GetKind(), want.GetName(), err)
				} else if !same(got, want) {
					t.Errorf("%s %s differs at the second server", want.GetKind(), want.GetName())
				}
			}
			y.add("objects applied twice", len(objects))
			y.add("kinds", len(first.kinds))
			checkCaches(t, first.server)
		})
	}
}

// same reports whether two objects are equal, apart from the fields that controllers set.
func same(a, b *unstructured.Unstructured) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, object := range []*unstructured.Unstructured{a, b} {
		unstructured.RemoveNestedField(object.Object, "status")
		object.SetManagedFields(nil)
		object.SetResourceVersion("")
	}
	return equality.Semantic.DeepEqual(a, b)
}

// rank returns the rank of an object: objects of a higher rank are applied first, because others depend on them.
func rank(object *unstructured.Unstructured) int {
	return slices.Index([]string{"CustomResourceDefinition", "Namespace"}, object.GetKind())
}

// manifests reads all objects of a directory and its subdirectories.
func manifests(t *testing.T) (objects []*unstructured.Unstructured) {
	t.Helper()
	folder := os.Getenv(manifestsVariable)
	if folder == "" {
		folder = "testdata"
	}
	err := filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer file.Close()
		for documents := yaml.NewYAMLOrJSONDecoder(file, 1<<16); ; {
			object := &unstructured.Unstructured{}
			if err := documents.Decode(object); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			switch {
			case object.IsList():
				if err := object.EachListItem(func(item runtime.Object) error {
					objects = append(objects, item.(*unstructured.Unstructured))
					return nil
				}); err != nil {
					return err
				}
			case len(object.Object) > 0:
				objects = append(objects, object)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) == 0 {
		t.Fatalf("no manifests in %s", folder)
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(b) - rank(a) })
	return objects
}

// applier applies objects of any kind to a server.
type applier struct {
	server  *apiserver
	dynamic dynamic.Interface
	mapper  *restmapper.DeferredDiscoveryRESTMapper
	kinds   map[schema.GroupVersionKind]bool // kinds that prepare has handled
	defined map[schema.GroupKind]bool        // by manifests
}

func newApplier(t *testing.T, s *apiserver, objects []*unstructured.Unstructured) *applier {
	t.Helper()
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	defined := map[schema.GroupKind]bool{}
	for _, object := range objects {
		group, _, _ := unstructured.NestedString(object.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(object.Object, "spec", "names", "kind")
		defined[schema.GroupKind{Group: group, Kind: kind}] = true
	}
	return &applier{
		server: s, dynamic: client, kinds: map[schema.GroupVersionKind]bool{}, defined: defined,
		mapper: restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(s.clients.Discovery())),
	}
}

// prepare creates the prerequisites of an object that no manifest contains: its namespace, and a definition of its kind.
func (a *applier) prepare(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	if namespace := object.GetNamespace(); namespace != "" {
		_, err := a.server.clients.CoreV1().Namespaces().Create(
			t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	kind := object.GroupVersionKind()
	if a.kinds[kind] {
		return
	}
	a.kinds[kind] = true
	if _, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version); err == nil {
		return
	} else if !meta.IsNoMatchError(err) {
		t.Fatal(err)
	}
	if !a.defined[kind.GroupKind()] {
		a.define(t, kind)
	}
	eventually(t, "the definition of "+kind.String(), func() error {
		a.mapper.Reset()
		if _, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version); err != nil {
			return err
		}
		_, err := a.resource(t, object).List(t.Context(), metav1.ListOptions{Limit: 1})
		return err
	})
}

// define defines a kind whose objects may have any fields.
func (a *applier) define(t *testing.T, kind schema.GroupVersionKind) {
	t.Helper()
	plural, singular := meta.UnsafeGuessKindToResource(kind)
	open := true
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name: plural.Resource + "." + kind.Group,
			// Kubernetes' own groups require an approval annotation.
			Annotations: map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, of a test"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Plural: plural.Resource, Singular: singular.Resource, Kind: kind.Kind, ListKind: kind.Kind + "List",
			},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &open},
				},
			}},
		},
	}
	definitions, err := clientset.NewForConfig(a.server.Config)
	if err != nil {
		t.Fatal(err)
	}
	_, err = definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), definition, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// resource returns a client for the kind and the namespace of an object.
func (a *applier) resource(t *testing.T, object *unstructured.Unstructured) dynamic.ResourceInterface {
	t.Helper()
	kind := object.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		t.Fatal(err)
	}
	client := a.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return client
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = "default"
	}
	return client.Namespace(namespace)
}

// apply is kubectl apply --server-side.
func (a *applier) apply(t *testing.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	applied, err := a.resource(t, object).Apply(
		t.Context(), object.GetName(), object, metav1.ApplyOptions{FieldManager: "kubetest", Force: true})
	if err != nil {
		t.Fatalf("%s %s: %v", object.GetKind(), object.GetName(), err)
	}
	return applied
}
