package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/manifest"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// interferer simulates a concurrent client: before each write or deletion it executes the next of its deeds.
type interferer struct {
	storage.Backend
	deeds []func()
}

func (m *interferer) interfere() {
	if len(m.deeds) > 0 {
		deed := m.deeds[0]
		m.deeds = m.deeds[1:]
		deed()
	}
}

func (m *interferer) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	m.interfere()
	return m.Backend.WriteCAS(ctx, res)
}

func (m *interferer) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	m.interfere()
	return m.Backend.DeleteCAS(ctx, id, version)
}

// newInterferer opens a store, and returns functions that apply and delete there as another client.
func newInterferer(t *testing.T) (m *interferer, apply func(text string) func(), remove func()) {
	t.Helper()
	c := newRunner(t, memoryURL())
	backend, err := storage.Open(t.Context(), c.env["ASHLAR_STORE"])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, backend.Close()) })
	apply = func(text string) func() {
		return func() { c.ok(configMap("a", text), "apply", "-f", "-") }
	}
	return &interferer{Backend: backend}, apply, func() { c.ok("", "delete", "core/ConfigMap", "a") }
}

func applyTo(t *testing.T, backend storage.Backend, doc string) (string, error) {
	t.Helper()
	objects, err := manifest.Read("doc", strings.NewReader(doc), manifest.Defaults{Partition: "default", Namespace: "default"})
	require.NoError(t, err)
	set, err := newSet(objects)
	require.NoError(t, err)
	require.NoError(t, set.findOwners(t.Context(), backend))
	var out bytes.Buffer
	err = set.apply(t.Context(), backend, &out)
	return out.String(), err
}

func TestApplyRetries(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		deeds func(apply func(string) func(), remove func()) []func()
		want  string
	}{
		"created by others":          {func(apply func(string) func(), _ func()) []func() { return []func(){apply("x")} }, "updated"},
		"created the same by others": {func(apply func(string) func(), _ func()) []func() { return []func(){apply("mine")} }, "unchanged"},
		"created, changed, changed": {func(apply func(string) func(), _ func()) []func() {
			return []func(){apply("x"), apply("y"), apply("z")}
		}, "updated"},
		"created, deleted": {func(apply func(string) func(), remove func()) []func() { return []func(){apply("x"), remove} }, "created"},
		"created, deleted and created": {func(apply func(string) func(), remove func()) []func() {
			return []func(){apply("x"), func() { remove(); apply("y")() }}
		}, "updated"},
	} {
		m, apply, remove := newInterferer(t)
		m.deeds = tc.deeds(apply, remove)
		out, err := applyTo(t, m, configMap("a", "mine"))
		require.NoError(t, err, name)
		require.Equal(t, "core/ConfigMap default/a "+tc.want+"\n", out, name)
		require.Empty(t, m.deeds, name)
		out, err = applyTo(t, m, configMap("a", "mine"))
		require.NoError(t, err, name)
		require.Equal(t, "core/ConfigMap default/a unchanged\n", out, name)
	}
}

// A document with a version applies to exactly that version: a retry would undo the changes of other clients.
func TestApplyWithVersionDoesNotRetry(t *testing.T) {
	t.Parallel()
	m, apply, _ := newInterferer(t)
	apply("x")()
	id := key.Key{Group: "core", Kind: "ConfigMap", Partition: "default", Namespace: "default", Name: "a"}.ID("", "v1")
	stored, err := read(t.Context(), m, id)
	require.NoError(t, err)
	m.deeds = []func(){apply("y")}
	doc := fmt.Sprintf(`{"id":{"name":"a","type":{"group":"core","groupVersion":"v1","kind":"ConfigMap"}},"version":%q}`, stored.Version)
	_, err = applyTo(t, m, doc)
	require.ErrorIs(t, err, storage.ErrCASFailure)
	require.Equal(t, cli.ExitConflict, cli.ExitCode(err))
}

func TestDeleteRetries(t *testing.T) {
	t.Parallel()
	id := key.Key{Group: "core", Kind: "ConfigMap", Partition: "default", Namespace: "default", Name: "a"}.ID("", "v1")
	m, apply, remove := newInterferer(t)
	apply("x")()
	stored, err := read(t.Context(), m, id)
	require.NoError(t, err)

	m.deeds = []func(){apply("y")}
	guarded := &deleter{backend: m, out: &bytes.Buffer{}, guard: stored, visiting: map[key.Key]bool{}}
	require.ErrorIs(t, guarded.delete(t.Context(), stored), storage.ErrCASFailure)

	m.deeds = []func(){apply("z"), apply("zz")}
	var out bytes.Buffer
	d := &deleter{backend: m, out: &out, visiting: map[key.Key]bool{}}
	require.NoError(t, d.delete(t.Context(), stored))
	require.Equal(t, "core/ConfigMap default/a deleted\n", out.String())
	_, err = read(t.Context(), m, id)
	require.ErrorIs(t, err, storage.ErrNotFound)

	// A resource that another client deleted and created again is a different resource, and must not be deleted.
	apply("x")()
	stored, err = read(t.Context(), m, id)
	require.NoError(t, err)
	m.deeds = []func(){func() { remove(); apply("new")() }}
	require.NoError(t, d.delete(t.Context(), stored))
	_, err = read(t.Context(), m, id)
	require.NoError(t, err)
}
