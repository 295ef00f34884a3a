package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/cmd/ashlar/internal/manifest"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/jsonpb"
	"github.com/ashlar-dev/storage/resourcepb"
)

const boutique = "../../examples/boutique"

func TestSessionOnMemory(t *testing.T) {
	t.Parallel()
	session(t, func(*testing.T) string { return memoryURL() })
}

func TestSessionOnSQLite(t *testing.T) {
	t.Parallel()
	session(t, fileURL)
}

func fileURL(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "store.db") }

// session runs the commands of a user, on a new store for each part.
func session(t *testing.T, fresh func(t *testing.T) string) {
	for name, part := range map[string]func(*testing.T, *runner){
		"apply and read back":        applyAndReadBack,
		"what is shown is appliable": listedIsAppliable,
		"update":                     update,
		"owners":                     owners,
		"watch and resume":           watchAndResume,
		"conflicts":                  conflicts,
		"interference":               concurrentApply,
		"odd names":                  unusualNames,
		"pages":                      func(t *testing.T, c *runner) { importMany(t, c); pagesAreJoined(t, c) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			part(t, newRunner(t, fresh(t)))
		})
	}
}

func listed(t *testing.T, text string) map[key.Key]*resourcepb.Resource {
	t.Helper()
	out := map[key.Key]*resourcepb.Resource{}
	for _, line := range lines(text) {
		res, err := jsonpb.Unmarshal([]byte(line))
		require.NoError(t, err, line)
		out[key.Of(res.Id)] = res
	}
	return out
}

func applyAndReadBack(t *testing.T, c *runner) {
	objects, err := manifest.ReadPath(boutique, manifest.Defaults{Partition: "default", Namespace: "default"})
	require.NoError(t, err)

	created := lines(c.ok("", "apply", "-f", boutique))
	require.Len(t, created, len(objects))
	for i, o := range objects {
		require.Equal(t, cli.Describe(o.Resource.Id)+" created", created[i], "in the order of the files")
	}
	for _, line := range lines(c.ok("", "apply", "-f", boutique)) {
		require.True(t, strings.HasSuffix(line, " unchanged"), line)
	}

	stored := listed(t, c.ok("", "list", "*", "-A", "-o", "json"))
	require.Len(t, stored, len(objects))
	kinds := map[string]int{}
	for _, o := range objects {
		res := stored[key.Of(o.Resource.Id)]
		require.NotNil(t, res, o.Position)
		require.True(t, proto.Equal(o.Resource.Data, res.Data), "payload of %v", o.Position)
		require.Len(t, res.Metadata, len(o.Resource.Metadata), o.Position)
		for k, v := range o.Resource.Metadata {
			require.Equal(t, v, res.Metadata[k], "%v: %s", o.Position, k)
		}
		require.NotEmpty(t, res.Id.Uid)
		require.NotEmpty(t, res.Generation)
		require.NotEmpty(t, res.Version)
		if len(o.Owners) > 0 {
			require.Equal(t, stored[key.Of(o.Owners[0])].Id.Uid, res.Owner.GetUid(), "owner of %v", o.Position)
		}
		kinds[cli.TypeName(res.Id.Type)]++
	}

	require.Equal(t, "apps/Deployment/storefront\n", c.ok("", "get", "apps/Deployment", "storefront", "-n", "boutique", "-o", "name"))
	require.Regexp(t, `(?m)^TYPE +PARTITION +NAMESPACE +NAME +OWNER\napps/Deployment +default +boutique +storefront *\n$`,
		c.ok("", "get", "apps/Deployment", "storefront", "-n", "boutique"))
	one, err := jsonpb.Unmarshal([]byte(c.ok("", "get", "apps/Deployment", "storefront", "-n", "boutique", "-o", "json")))
	require.NoError(t, err)
	require.True(t, proto.Equal(stored[key.Of(one.Id)], one))
	require.Contains(t, c.ok("", "get", "apps/Deployment", "storefront", "-n", "boutique", "-o", "yaml"), "\n  name: storefront\n")

	types := lines(c.ok("", "types", "-o", "json"))
	require.Len(t, types, len(kinds))
	for _, line := range types {
		var count typeCount
		require.NoError(t, json.Unmarshal([]byte(line), &count))
		require.Equal(t, kinds[count.Group+"/"+count.Kind], count.Count, line)
	}

	require.Equal(t, []string{"core/Service/basket", "core/Service/basket-db"},
		lines(c.ok("", "list", "core/Service", "-A", "--prefix", "basket", "-o", "name")))
	require.Len(t, lines(c.ok("", "list", "apps/*", "-n", "boutique", "-o", "name")), kinds["apps/Deployment"]+kinds["apps/ReplicaSet"]+kinds["apps/StatefulSet"])
	require.Len(t, lines(c.ok("", "list", "*", "-A", "--limit", "7", "-o", "name")), 7)
	require.Empty(t, c.ok("", "list", "*", "-n", "elsewhere"))
	require.Empty(t, c.ok("", "list", "*", "-A", "-p", "elsewhere"))
	require.Empty(t, c.ok("", "types", "-p", "elsewhere"))
}

func listedIsAppliable(t *testing.T, c *runner) {
	c.ok("", "apply", "-f", boutique)
	for _, format := range []string{"json", "yaml"} {
		shown := c.ok("", "list", "*", "-A", "-o", format)
		for _, line := range lines(c.ok(shown, "apply", "-f", "-")) {
			require.True(t, strings.HasSuffix(line, " unchanged"), line)
		}
	}
	// In another store they keep their uids, so owners stay owners. The versions belong to the new store.
	shown := c.ok("", "list", "*", "-A", "-o", "json")
	other := newRunner(t, memoryURL())
	for _, line := range lines(other.ok(shown, "apply", "-f", "-")) {
		require.True(t, strings.HasSuffix(line, " created"), line)
	}
	want, got := listed(t, shown), listed(t, other.ok("", "list", "*", "-A", "-o", "json"))
	require.Len(t, got, len(want))
	for k, res := range got {
		res.Version = want[k].Version
		require.True(t, proto.Equal(want[k], res), "%v", k)
	}
}

func update(t *testing.T, c *runner) {
	get := func() *resourcepb.Resource {
		res, err := jsonpb.Unmarshal([]byte(c.ok("", "get", "core/ConfigMap", "a", "-o", "json")))
		require.NoError(t, err)
		return res
	}
	require.Equal(t, "core/ConfigMap default/a created\n", c.ok(configMap("a", "1"), "apply", "-f", "-"))
	first := get()
	require.Equal(t, "core/ConfigMap default/a unchanged\n", c.ok(configMap("a", "1"), "apply", "-f", "-"))
	require.True(t, proto.Equal(first, get()))
	require.Equal(t, "core/ConfigMap default/a updated\n", c.ok(configMap("a", "2"), "apply", "-f", "-"))
	second := get()
	require.Equal(t, first.Id.Uid, second.Id.Uid)
	require.NotEmpty(t, second.Generation)
	require.NotEqual(t, first.Generation, second.Generation)
	require.NotEqual(t, first.Version, second.Version)

	// A status belongs to another writer: it is neither compared nor lost.
	withStatus := proto.CloneOf(second)
	withStatus.Id.Name, withStatus.Id.Uid, withStatus.Version = "b", "", ""
	withStatus.Status = map[string]*resourcepb.Status{"c": {ObservedGeneration: "g"}}
	text, err := jsonpb.Marshal(withStatus)
	require.NoError(t, err)
	require.Equal(t, "core/ConfigMap default/b created\n", c.ok(string(text), "apply", "-f", "-"))
	require.Equal(t, "core/ConfigMap default/b unchanged\n", c.ok(configMap("b", "2"), "apply", "-f", "-"))
	require.Equal(t, "core/ConfigMap default/b updated\n", c.ok(configMap("b", "3"), "apply", "-f", "-"))
	require.Contains(t, c.ok("", "get", "core/ConfigMap", "b", "-o", "json"), `"observedGeneration": "g"`)

	// Another group version is other content of the same resource.
	require.Equal(t, "core/ConfigMap default/a updated\n",
		c.ok(strings.Replace(configMap("a", "2"), "apiVersion: v1", "apiVersion: v2", 1), "apply", "-f", "-"))
	require.Equal(t, "v2", get().Id.Type.GroupVersion)

	// -n and -p apply to documents without a namespace or partition.
	require.Equal(t, "core/ConfigMap east/shop/a created\n", c.ok(configMap("a", "1"), "apply", "-f", "-", "-n", "shop", "-p", "east"))
	require.Equal(t, "core/ConfigMap/a\n", c.ok("", "get", "core/ConfigMap", "a", "-n", "shop", "-p", "east", "-o", "name"))
}

func owners(t *testing.T, c *runner) {
	c.ok("", "apply", "-f", boutique)
	direct := lines(c.ok("", "owned", "apps/Deployment", "storefront", "-n", "boutique", "-o", "name"))
	require.Equal(t, []string{"apps/ReplicaSet/storefront-7d9c5b8f44"}, direct)
	all := lines(c.ok("", "owned", "apps/Deployment", "storefront", "-n", "boutique", "-r", "-o", "name"))
	require.Len(t, all, 4)
	require.Equal(t, direct[0], all[0])
	table := lines(c.ok("", "owned", "apps/Deployment", "storefront", "-n", "boutique", "-r"))
	require.Len(t, table, 5)
	require.Regexp(t, `^  core/Pod +default +boutique +storefront-7d9c5b8f44-2xk4p +apps/ReplicaSet/storefront-7d9c5b8f44$`, table[2])

	// A new child of a stored owner, and one of a missing owner.
	child := "apiVersion: v1\nkind: Pod\nmetadata:\n  name: extra\n  namespace: boutique\n  ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: %s}]\n"
	c.ok(fmt.Sprintf(child, "storefront-7d9c5b8f44"), "apply", "-f", "-")
	require.Len(t, lines(c.ok("", "owned", "apps/Deployment", "storefront", "-n", "boutique", "-r", "-o", "name")), 5)
	r := c.run(configMap("not-written", "")+"---\n"+fmt.Sprintf(child, "nobody"), "apply", "-f", "-")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "standard input: document 2, line 6: the owner of core/Pod boutique/extra, apps/ReplicaSet boutique/nobody, is neither")
	require.Equal(t, cli.ExitNotFound, c.run("", "get", "core/ConfigMap", "not-written").code, "nothing is written")

	// An owner without a namespace is found in the default one.
	c.ok("apiVersion: v1\nkind: Node\nmetadata: {name: n1}\n", "apply", "-f", "-")
	c.ok("apiVersion: v1\nkind: Pod\nmetadata:\n  name: static\n  namespace: system\n  ownerReferences: [{apiVersion: v1, kind: Node, name: n1}]\n", "apply", "-f", "-")
	require.Equal(t, "core/Pod/static\n", c.ok("", "owned", "core/Node", "n1", "-o", "name"))

	deleted := lines(c.ok("", "delete", "apps/Deployment", "storefront", "-n", "boutique", "--cascade"))
	require.Len(t, deleted, 6)
	require.Equal(t, "apps/Deployment boutique/storefront deleted", deleted[5], "owners after what they own")
	require.Equal(t, cli.ExitNotFound, c.run("", "get", "apps/Deployment", "storefront", "-n", "boutique").code)
	require.Equal(t, cli.ExitNotFound, c.run("", "owned", "apps/Deployment", "storefront", "-n", "boutique").code)
	require.Equal(t, cli.ExitNotFound, c.run("", "get", "core/Pod", "extra", "-n", "boutique").code)
	require.NotEmpty(t, c.ok("", "get", "core/Service", "storefront", "-n", "boutique"))

	require.Equal(t, "apps/Deployment boutique/catalogue deleted\n", c.ok("", "delete", "apps/Deployment", "catalogue", "-n", "boutique"))
	require.Equal(t, cli.ExitOK, c.run("", "get", "apps/ReplicaSet", "catalogue-6f58c9d7b5", "-n", "boutique").code, "without --cascade it stays")
}

// eventName returns the parts of an event that the tests check.
func eventName(t *testing.T, line string) (what, cursor string) {
	t.Helper()
	var ev struct {
		Upsert, Delete *struct{ Resource json.RawMessage }
		EndOfSnapshot  *struct{}
		Bookmark       *struct{ Cursor string }
		Cursor         string
	}
	require.NoError(t, json.Unmarshal([]byte(line), &ev), line)
	switch {
	case ev.EndOfSnapshot != nil:
		return "end", ev.Cursor
	case ev.Bookmark != nil:
		require.Empty(t, ev.Bookmark.Cursor, "the position is beside the event")
		return "bookmark", ev.Cursor
	case ev.Upsert != nil:
		res, err := jsonpb.Unmarshal(ev.Upsert.Resource)
		require.NoError(t, err)
		return "upsert " + res.Id.Name, ev.Cursor
	}
	require.NotNil(t, ev.Delete, line)
	res, err := jsonpb.Unmarshal(ev.Delete.Resource)
	require.NoError(t, err)
	return "delete " + res.Id.Name, ev.Cursor
}

func watchAndResume(t *testing.T, c *runner) {
	c.ok(configMap("b", "0")+"---\n"+configMap("a", "0")+"---\n"+configMap("other", "0"), "apply", "-f", "-")
	expect := func(w *watchRun, want ...string) (cursor string) {
		t.Helper()
		for _, what := range want {
			var got string
			got, cursor = eventName(t, w.next())
			require.Equal(t, what, got)
		}
		return cursor
	}

	w := c.watch("core/ConfigMap", "-o", "json", "--show-cursor", "--prefix", "")
	require.Empty(t, expect(w, "upsert a", "upsert b", "upsert other"), "no position inside a snapshot")
	require.NotEmpty(t, expect(w, "end"))
	c.ok(configMap("a", "1"), "apply", "-f", "-")
	expect(w, "upsert a")
	c.ok("", "delete", "core/ConfigMap", "b")
	cursor := expect(w, "delete b")
	w.stop()
	require.Equal(t, cli.ExitOK, w.end())

	// No watch is open.
	c.ok(configMap("a", "2"), "apply", "-f", "-")
	c.ok(configMap("c", "0"), "apply", "-f", "-")
	c.ok("", "delete", "core/ConfigMap", "c")

	// After two lives the watch resumes where it stopped: no event is missing or repeated.
	w = c.watch("core/ConfigMap", "-o", "json", "--show-cursor", "--cursor", cursor, "--limit", "2")
	cursor = expect(w, "upsert a", "upsert c")
	require.Equal(t, cli.ExitOK, w.end())
	w = c.watch("core/ConfigMap", "-o", "json", "--cursor", cursor)
	expect(w, "delete c")
	c.ok(configMap("d", "0"), "apply", "-f", "-")
	expect(w, "upsert d")
	w.stop()
	require.Equal(t, cli.ExitOK, w.end())

	// The other formats.
	w = c.watch("core/ConfigMap", "--limit", "1")
	require.Regexp(t, `^upsert core/ConfigMap +default/default +a$`, w.next())
	require.Equal(t, cli.ExitOK, w.end())
	w = c.watch("core/ConfigMap", "-o", "name", "--prefix", "d")
	require.Equal(t, "upsert core/ConfigMap/d", w.next())
	require.Equal(t, "synced", w.next())
	w.stop()
	require.Equal(t, cli.ExitOK, w.end())
	w = c.watch("core/ConfigMap", "-o", "yaml", "--limit", "2")
	require.Equal(t, cli.ExitOK, w.end())
	var text []string
	for line := w.next(); line != ""; line = w.next() {
		text = append(text, line)
	}
	require.Equal(t, "upsert:", text[0])
	require.Contains(t, text, "---")
}

func conflicts(t *testing.T, c *runner) {
	c.ok(configMap("a", "1"), "apply", "-f", "-")
	shown := c.ok("", "get", "core/ConfigMap", "a", "-o", "json")
	res, err := jsonpb.Unmarshal([]byte(shown))
	require.NoError(t, err)
	edited := strings.Replace(shown, `"text": "1"`, `"text": "2"`, 1)
	require.Equal(t, "core/ConfigMap default/a updated\n", c.ok(edited, "apply", "-f", "-"))
	r := c.run(edited, "apply", "-f", "-")
	require.Equal(t, cli.ExitConflict, r.code, "the version in the document is not the stored one any more")
	require.Contains(t, r.err, res.Version)

	for _, doc := range []string{
		`{"id":{"name":"a","type":{"group":"core","groupVersion":"v1","kind":"ConfigMap"}},"version":"garbage / \u0007"}`,
		`{"id":{"name":"a","type":{"group":"core","groupVersion":"v1","kind":"ConfigMap"},"uid":"another"}}`,
	} {
		require.Equal(t, cli.ExitConflict, c.run(doc, "apply", "-f", "-").code, doc)
	}
	require.Equal(t, cli.ExitConflict, c.run("", "delete", "core/ConfigMap", "a", "--version", "garbage").code)
	require.Equal(t, cli.ExitConflict, c.run("", "delete", "core/ConfigMap", "a", "--version", "").code)
	after := c.ok("", "get", "core/ConfigMap", "a", "-o", "json")
	require.Contains(t, after, `"text": "2"`, "nothing changed")
	current, err := jsonpb.Unmarshal([]byte(after))
	require.NoError(t, err)
	require.Equal(t, "core/ConfigMap default/a deleted\n", c.ok("", "delete", "core/ConfigMap", "a", "--version", current.Version))
	require.Equal(t, cli.ExitNotFound, c.run("", "delete", "core/ConfigMap", "a").code)
}

// concurrentApply applies different content to the same resources concurrently. All calls succeed, and one of them wins.
func concurrentApply(t *testing.T, c *runner) {
	const writers, resources = 4, 5
	codes := make(chan result, writers)
	for i := range writers {
		var docs strings.Builder
		for j := range resources {
			docs.WriteString("---\n" + configMap(fmt.Sprintf("c%d", j), fmt.Sprint(i)))
		}
		go func() { codes <- c.run(docs.String(), "apply", "-f", "-") }()
	}
	for range writers {
		r := <-codes
		require.Equal(t, cli.ExitOK, r.code, r.err)
		require.Len(t, lines(r.out), resources)
	}
	require.Len(t, listed(t, c.ok("", "list", "*", "-A", "-o", "json")), resources)
}

func unusualNames(t *testing.T, c *runner) {
	names := []string{"a b", "a/b", "ü/%2F#?", "tab\there", "\x1b[31mred", "*x", "'quote\"", strings.Repeat("n", 255), "-dash", "a\\b", "UPPER", "upper"}
	var docs strings.Builder
	for _, name := range names {
		docs.WriteString("---\n" + configMap(name, name))
	}
	require.Len(t, lines(c.ok(docs.String(), "apply", "-f", "-")), len(names))
	for _, name := range names {
		text := c.ok("", "get", "-o", "json", "core/ConfigMap", "--", name)
		res, err := jsonpb.Unmarshal([]byte(text))
		require.NoError(t, err)
		require.Equal(t, name, res.Id.Name)
	}
	table := c.ok("", "list", "core/ConfigMap", "-A")
	require.NotContains(t, table, "\x1b", "a name must not reach the terminal as a command to it")
	require.Len(t, lines(table), len(names)+1)
	for _, name := range names {
		c.ok("", "delete", "core/ConfigMap", "--", name)
	}
	require.Empty(t, c.ok("", "list", "*", "-A"))
}

// manyResources is the number of resources of pagesAreJoined: two full pages and a part of a third one.
const manyResources = 1010

// isApplied reports whether pagesAreJoined applies a resource. importMany imports the others.
func isApplied(i int) bool { return i%10 == 0 }

// manyDocuments returns the documents of some of the resources of pagesAreJoined, and their number.
func manyDocuments(wanted func(i int) bool) (docs string, n int) {
	var all strings.Builder
	for i := range manyResources {
		text := ""
		if i%200 == 0 {
			text = strings.Repeat("x", 200_000)
		}
		if wanted(i) {
			all.WriteString("---\n" + configMap(fmt.Sprintf("c%04d", i), text))
			n++
		}
	}
	return all.String(), n
}

// manyExported is the export of the resources that importMany imports.
var manyExported struct {
	once sync.Once
	text string
}

// importMany stores most of the resources of pagesAreJoined by an import, which needs less time than apply.
func importMany(t *testing.T, c *runner) {
	t.Helper()
	manyExported.once.Do(func() {
		docs, _ := manyDocuments(func(i int) bool { return !isApplied(i) })
		other := newRunner(t, memoryURL())
		other.ok(docs, "apply", "-f", "-")
		manyExported.text = other.ok("", "export", "-")
	})
	c.ok(manyExported.text, "import", "-")
}

// pagesAreJoined lists more than two pages, by count and by bytes.
func pagesAreJoined(t *testing.T, c *runner) {
	const many = manyResources
	docs, applied := manyDocuments(isApplied)
	require.Len(t, lines(c.ok(docs, "apply", "-f", "-")), applied)
	names := lines(c.ok("", "list", "*", "-A", "-o", "name"))
	require.Len(t, names, many)
	for i, name := range names {
		require.Equal(t, fmt.Sprintf("core/ConfigMap/c%04d", i), name)
	}
	require.Len(t, lines(c.ok("", "list", "*", "-A", "-o", "name", "--limit", "1005")), 1005)
	require.Equal(t, fmt.Sprintf("core/ConfigMap %d\n", many), strings.Join(strings.Fields(lines(c.ok("", "types"))[1]), " ")+"\n")
}
