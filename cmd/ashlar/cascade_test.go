package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

func (m *interferer) MaxOps() int { return m.Backend.(storage.Transactor).MaxOps() }

func (m *interferer) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	m.interfere()
	return m.Backend.(storage.Transactor).Commit(ctx, ops)
}

// family is a store with a grandmother, her child and grandchild, and an unrelated resource that owns nothing.
type family struct {
	*interferer
	t *testing.T
}

func memberID(name string) *resourcepb.ID {
	return key.Key{Group: "core", Kind: "ConfigMap", Partition: "default", Namespace: "default", Name: name}.ID("uid-"+name, "v1")
}

func newFamily(t *testing.T) *family {
	t.Helper()
	m, _, _ := newInterferer(t)
	f := &family{m, t}
	f.put("grandmother", "")
	f.put("stranger", "")
	f.put("child", "grandmother")
	f.put("grandchild", "child")
	return f
}

// put writes a resource with or without an owner, whatever is stored.
func (f *family) put(name, owner string) {
	f.t.Helper()
	res := &resourcepb.Resource{Id: memberID(name)}
	if owner != "" {
		res.Owner = memberID(owner)
	}
	if stored, err := read(f.t.Context(), f.Backend, res.Id); err == nil {
		res.Version = stored.Version
	}
	_, err := f.Backend.WriteCAS(f.t.Context(), res)
	require.NoError(f.t, err)
}

// create creates a resource with its own uid.
func (f *family) create(name, uid, owner string) {
	f.t.Helper()
	res := &resourcepb.Resource{Id: memberID(name), Owner: memberID(owner)}
	res.Id.Uid = uid
	_, err := f.Backend.WriteCAS(f.t.Context(), res)
	require.NoError(f.t, err)
}

// delete deletes a resource on behalf of another client.
func (f *family) delete(name string) {
	f.t.Helper()
	stored, err := read(f.t.Context(), f.Backend, memberID(name))
	require.NoError(f.t, err)
	require.NoError(f.t, f.Backend.DeleteCAS(f.t.Context(), stored.Id, stored.Version))
}

// remaining returns the names of the stored resources.
func (f *family) remaining() []string {
	f.t.Helper()
	list, err := f.List(f.t.Context(), storage.StrongConsistency, storage.UnversionedType{Group: "core", Kind: "ConfigMap"}, memberID("").Tenancy, "")
	require.NoError(f.t, err)
	var names []string
	for _, res := range list {
		names = append(names, res.Id.Name)
	}
	return names
}

// A resource that another client moves to another owner during a cascade is not deleted, and neither is anything it owns. After other
// changes the cascade deletes the resource anyway.
func TestCascadeKeepsMovedResources(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		deeds func(f *family) []func() // before each deletion
		left  []string
	}{
		"nothing happens": {func(*family) []func() { return nil }, []string{"stranger"}},
		"the grandchild moves": {func(f *family) []func() {
			return []func(){func() { f.put("grandchild", "stranger") }}
		}, []string{"grandchild", "stranger"}},
		"the grandchild is set free": {func(f *family) []func() {
			return []func(){func() { f.put("grandchild", "") }}
		}, []string{"grandchild", "stranger"}},
		"the child moves with what it owns": {func(f *family) []func() {
			return []func(){func() { f.put("child", "stranger") }}
		}, []string{"child", "grandchild", "stranger"}},
		"the child moves after its own was deleted": {func(f *family) []func() {
			return []func(){func() {}, func() { f.put("child", "stranger") }}
		}, []string{"child", "stranger"}},
		"all are changed and stay": {func(f *family) []func() {
			return []func(){
				func() { f.put("grandchild", "child") }, func() { f.put("child", "grandmother") },
				func() { f.put("grandchild", "child") }, func() { f.put("child", "grandmother") },
				func() {}, func() { f.put("grandmother", "") },
			}
		}, []string{"stranger"}},
		"others delete the child": {func(f *family) []func() {
			return []func(){func() { f.delete("child") }}
		}, []string{"stranger"}},
		"one more is born": {func(f *family) []func() {
			return []func(){func() {}, func() { f.put("late", "child") }}
		}, []string{"stranger"}},
		"the child is deleted and born again": {func(f *family) []func() {
			return []func(){func() {}, func() {}, func() { f.create("child", "another uid", "grandmother") }}
		}, []string{"stranger"}},
		"the child is deleted and put back": {func(f *family) []func() {
			return []func(){func() {}, func() {}, func() { f.put("child", "grandmother") }}
		}, []string{"stranger"}},
		"the child moves to the grandmother's own child": {func(f *family) []func() {
			return []func(){func() { f.put("sister", "grandmother"); f.put("child", "sister") }}
		}, []string{"stranger"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFamily(t)
			stored, err := read(t.Context(), f.Backend, memberID("grandmother"))
			require.NoError(t, err)
			f.deeds = c.deeds(f)
			var out bytes.Buffer
			d := &deleter{backend: f.interferer, out: &out, cascade: true, visiting: map[key.Key]bool{}}
			require.NoError(t, d.delete(t.Context(), stored))
			require.Empty(t, f.deeds, "some were not executed")
			require.Equal(t, c.left, f.remaining(), "deleted was:\n%s", out.String())
		})
	}
}

// A store without transactions cannot tie a deletion to all owners above it, but it still checks the owner itself.
func TestCascadeWithoutTransactions(t *testing.T) {
	t.Parallel()
	f := newFamily(t)
	stored, err := read(t.Context(), f.Backend, memberID("grandmother"))
	require.NoError(t, err)
	f.deeds = []func(){func() { f.put("grandchild", "stranger") }}
	d := &deleter{backend: struct{ storage.Backend }{f.interferer}, out: &bytes.Buffer{}, cascade: true, visiting: map[key.Key]bool{}}
	require.NoError(t, d.delete(t.Context(), stored))
	require.Equal(t, []string{"grandchild", "stranger"}, f.remaining())
}

// With --version nothing is deleted if the resource changes before the cascade begins to delete.
func TestCascadeWithVersion(t *testing.T) {
	t.Parallel()
	f := newFamily(t)
	stored, err := read(t.Context(), f.Backend, memberID("grandmother"))
	require.NoError(t, err)
	f.deeds = []func(){func() { f.put("grandmother", "") }}
	d := &deleter{backend: f.interferer, out: &bytes.Buffer{}, cascade: true, guard: stored, visiting: map[key.Key]bool{}}
	require.ErrorIs(t, d.delete(t.Context(), stored), storage.ErrCASFailure)
	require.Equal(t, []string{"child", "grandchild", "grandmother", "stranger"}, f.remaining())
}
