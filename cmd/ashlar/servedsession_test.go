package main

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/internal/jsonpb"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestSessionThroughServer(t *testing.T) {
	t.Parallel()
	sessionThroughServer(t, fileURL)
}

// sessionThroughServer runs the commands of a user, on a server of a new store for each part.
func sessionThroughServer(t *testing.T, fresh func(t *testing.T) string) {
	for name, part := range map[string]func(*testing.T, *runner){
		"apply and read back": applyAndReadBack,
		"watch and resume":    watchAndResume,
		"conflicts":           conflicts,
		"interference":        concurrentApply,
		"pages":               pagesAreJoined,
		"update":              updateThroughServer,
		"owners":              ownersThroughServer,
		"finalizers":          finalizersThroughServer,
		"bookmarks":           bookmarksThroughServer,
		"mistakes":            mistakesThroughServer,
		"export":              exportThroughServer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := fresh(t)
			if name == "pages" {
				importMany(t, newRunner(t, url))
			}
			s := serveStore(t, url)
			part(t, s.cli(t))
			s.signal(syscall.SIGTERM)
			require.Equal(t, cli.ExitOK, s.end())
		})
	}
}

func resourceOf(t *testing.T, c *runner, args ...string) *resourcepb.Resource {
	t.Helper()
	res, err := jsonpb.Unmarshal([]byte(c.ok("", append(append([]string{"get"}, args...), "-o", "json")...)))
	require.NoError(t, err)
	return res
}

// An update keeps the uid and sets a new generation. A resource printed by another store gets a uid of this server, and loses its status.
func updateThroughServer(t *testing.T, c *runner) {
	c.ok(configMap("a", "1"), "apply", "-f", "-")
	first := resourceOf(t, c, "core/ConfigMap", "a")
	require.Equal(t, "core/ConfigMap default/a unchanged\n", c.ok(configMap("a", "1"), "apply", "-f", "-"))
	require.Equal(t, "core/ConfigMap default/a updated\n", c.ok(configMap("a", "2"), "apply", "-f", "-"))
	second := resourceOf(t, c, "core/ConfigMap", "a")
	require.Equal(t, first.Id.Uid, second.Id.Uid)
	require.NotEqual(t, first.Generation, second.Generation)
	require.NotEqual(t, first.Version, second.Version)

	foreign := proto.CloneOf(second)
	foreign.Id.Name, foreign.Id.Uid, foreign.Generation = "b", "some-uid", "some-generation"
	foreign.Status = map[string]*resourcepb.Status{"c": {ObservedGeneration: "g"}}
	text, err := jsonpb.Marshal(foreign)
	require.NoError(t, err)
	require.Equal(t, "core/ConfigMap default/b created, without its status\n", c.ok(string(text), "apply", "-f", "-"))
	b := resourceOf(t, c, "core/ConfigMap", "b")
	require.NotEqual(t, "some-uid", b.Id.Uid)
	require.NotEqual(t, "some-generation", b.Generation)
	require.Empty(t, b.Status)

	// Another group version is other content of the same resource, which is still found by its name.
	require.Equal(t, "core/ConfigMap default/a updated\n",
		c.ok(strings.Replace(configMap("a", "2"), "apiVersion: v1", "apiVersion: v2", 1), "apply", "-f", "-"))
	require.Equal(t, "v2", resourceOf(t, c, "core/ConfigMap", "a").Id.Type.GroupVersion)
	require.Equal(t, cli.ExitConflict, c.run(string(text), "apply", "-f", "-").code, "another uid is stored")
}

// Resources printed by one store can be applied through a server: children refer to the uids that the server has assigned to their owners.
// A deletion with --cascade prints the deleted resources; without it, the server's reaper deletes owned resources.
func ownersThroughServer(t *testing.T, c *runner) {
	other := newRunner(t, memoryURL())
	other.ok("", "apply", "-f", boutique)
	shown := other.ok("", "list", "*", "-A", "-o", "json")
	for _, line := range lines(c.ok(shown, "apply", "-f", "-")) {
		require.True(t, strings.HasSuffix(line, " created"), line)
	}
	all := lines(c.ok("", "owned", "apps/Deployment", "storefront", "-n", "boutique", "-r", "-o", "name"))
	require.Len(t, all, 4)
	deleted := lines(c.ok("", "delete", "apps/Deployment", "storefront", "-n", "boutique", "--cascade"))
	require.Len(t, deleted, 5)
	require.Equal(t, "apps/Deployment boutique/storefront deleted", deleted[4], "owners after what they own")
	for _, pod := range all {
		kind, name, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(pod, "apps/"), "core/"), "/")
		group := "core/"
		if kind == "ReplicaSet" {
			group = "apps/"
		}
		require.Equal(t, cli.ExitNotFound, c.run("", "get", group+kind, name, "-n", "boutique").code, pod)
	}

	require.Equal(t, "apps/Deployment boutique/catalogue deleted\n", c.ok("", "delete", "apps/Deployment", "catalogue", "-n", "boutique"))
	require.Eventually(t, func() bool {
		return c.run("", "get", "apps/ReplicaSet", "catalogue-6f58c9d7b5", "-n", "boutique").code == cli.ExitNotFound
	}, waitTimeout, waitTimeout/1000)
	r := c.run("apiVersion: v1\nkind: Pod\nmetadata:\n  name: extra\n  ownerReferences: [{apiVersion: v1, kind: Node, name: nobody}]\n", "apply", "-f", "-")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "is neither in the files nor in the store")
}

// A resource with finalizers is marked, and deleted with the last of them. Manifests do not contain finalizers, and do not remove them.
func finalizersThroughServer(t *testing.T, c *runner) {
	kept := func(finalizers string) string {
		return `{"id":{"name":"a","type":{"group":"core","groupVersion":"v1","kind":"ConfigMap"}},"metadata":{"finalizers":"` + finalizers + `"}}`
	}
	plain := `{"id":{"name":"a","type":{"group":"core","groupVersion":"v1","kind":"ConfigMap"}},"metadata":{"x":"y"}}`
	c.ok(kept("one two"), "apply", "-f", "-")
	require.Equal(t, "core/ConfigMap default/a updated\n", c.ok(plain, "apply", "-f", "-"))
	require.Equal(t, "one two", resourceOf(t, c, "core/ConfigMap", "a").Metadata["finalizers"])
	c.ok(kept("one two"), "apply", "-f", "-")
	marked := "core/ConfigMap default/a marked for deletion, waits for its finalizers\n"
	require.Equal(t, marked, c.ok("", "delete", "core/ConfigMap", "a"))
	require.Equal(t, marked, c.ok("", "delete", "core/ConfigMap", "a", "--cascade"))
	r := c.run(plain, "apply", "-f", "-")
	require.Equal(t, cli.ExitFailed, r.code, r.out)
	require.Contains(t, r.err, "expected at least one finalizer to be removed")
	c.ok(kept("one"), "apply", "-f", "-")
	c.ok(kept(""), "apply", "-f", "-")
	require.Equal(t, cli.ExitNotFound, c.run("", "get", "core/ConfigMap", "a").code)
}

// Bookmarks come from the server about once a second, and are shown once after a change.
func bookmarksThroughServer(t *testing.T, c *runner) {
	c.ok(configMap("a", "0"), "apply", "-f", "-")
	w := c.watch("core/ConfigMap", "-o", "name", "--bookmarks", "--show-cursor")
	require.Equal(t, "upsert core/ConfigMap/a", w.next())
	require.Regexp(t, "^synced cursor=.", w.next())
	require.Regexp(t, "^bookmark cursor=.", w.next())
	c.ok(configMap("a", "1"), "apply", "-f", "-")
	require.Regexp(t, "^upsert core/ConfigMap/a cursor=.", w.next())
	last := w.next()
	require.Regexp(t, "^bookmark cursor=.", last)
	w.stop()
	require.Equal(t, cli.ExitOK, w.end())
	_, cursor, _ := strings.Cut(last, "=")
	w = c.watch("core/ConfigMap", "-o", "name", "--bookmarks", "--cursor", cursor, "--limit", "1")
	require.Equal(t, "bookmark", w.next(), "no event follows")
	c.ok("", "delete", "core/ConfigMap", "a")
	require.Equal(t, "delete core/ConfigMap/a", w.next())
	require.Equal(t, cli.ExitOK, w.end())
}

func mistakesThroughServer(t *testing.T, c *runner) {
	for name, tc := range map[string]struct {
		in   string
		args []string
		code int
		want string
	}{
		"not there":       {"", []string{"get", "core/ConfigMap", "none"}, cli.ExitNotFound, "get core/ConfigMap/none: resource not found"},
		"nothing deleted": {"", []string{"delete", "core/ConfigMap", "none"}, cli.ExitNotFound, "resource not found"},
		"odd name":        {configMap("UPPER", "1"), []string{"apply", "-f", "-"}, cli.ExitFailed, "id.name invalid"},
		"odd name, read":  {"", []string{"get", "core/ConfigMap", "UPPER"}, cli.ExitUsage, "id.name invalid"},
		"bad cursor":      {"", []string{"watch", "*", "--cursor", "garbage"}, cli.ExitUsage, "invalid"},
		"empty cursor":    {"", []string{"watch", "*", "--cursor", ""}, cli.ExitUsage, "the cursor is empty"},
		"too large":       {configMap("big", strings.Repeat("x", 1<<20-100)), []string{"apply", "-f", "-"}, cli.ExitFailed, "too large"},
		"compact":         {"", []string{"compact", "1"}, cli.ExitUsage, "compact does not support --server"},
		"fsck":            {"", []string{"fsck"}, cli.ExitUsage, "fsck does not support --server"},
		"schema":          {"", []string{"schema", "status"}, cli.ExitUsage, "does not support --server"},
		"migrate":         {"", []string{"migrate", "--from", "mem://", "--to", "mem://"}, cli.ExitUsage, "migrate does not support --server"},
		"import":          {"", []string{"import", "x"}, cli.ExitUsage, "import does not support --server"},
		"lock":            {"", []string{"lock", "job"}, cli.ExitUsage, "lock does not support --server"},
		"conformance":     {"", []string{"conformance"}, cli.ExitUsage, "conformance does not support --server"},
		"a store as well": {"", []string{"list", "*", "--store", "mem://"}, cli.ExitUsage, "--server and --store are mutually exclusive"},
		"no address":      {"", []string{"list", "*", "--server", "nowhere"}, cli.ExitUsage, "host:port"},
		"nobody there":    {"", []string{"list", "*", "--server", "127.0.0.1:1"}, cli.ExitFailed, "the server 127.0.0.1:1"},
	} {
		c := c
		if slices.Contains(tc.args, "--server") {
			c = &runner{t: t, env: c.env}
		}
		r := c.run(tc.in, tc.args...)
		require.Equal(t, tc.code, r.code, "%s: %s%s", name, r.out, r.err)
		require.Contains(t, r.err, tc.want, name)
	}
}

// An export through a server contains the resources that the server lists, and a store can import it.
func exportThroughServer(t *testing.T, c *runner) {
	created := lines(c.ok("", "apply", "-f", boutique))
	file := t.TempDir() + "/x"
	require.Contains(t, c.ok("", "export", file), "resources, ")
	other := newRunner(t, fileURL(t))
	other.ok("", "import", file)
	require.Len(t, lines(other.ok("", "list", "*", "-A", "-o", "name")), len(created))
	want, got := listed(t, c.ok("", "list", "*", "-A", "-o", "json")), listed(t, other.ok("", "list", "*", "-A", "-o", "json"))
	for k, res := range got {
		res.Version = want[k].Version
		require.True(t, proto.Equal(want[k], res), "%v", k)
	}
}
