package web_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// changeLines returns the lines of an answer with changes.
func changeLines(t *testing.T, a answer) (lines []string) {
	t.Helper()
	require.Equal(t, http.StatusOK, a.code, a.body)
	for line := range strings.Lines(a.body) {
		var c struct {
			Revision         int64
			Change           string
			Resource, Before struct {
				ID       struct{ Name string }
				Metadata map[string]string
			}
		}
		require.NoError(t, json.Unmarshal([]byte(line), &c), line)
		require.Positive(t, c.Revision)
		name := c.Resource.ID.Name
		if c.Change == "deleted" {
			name = c.Before.ID.Name
		}
		lines = append(lines, fmt.Sprint(c.Change, " ", name, " ", c.Before.Metadata["n"], "-", c.Resource.Metadata["n"]))
	}
	return lines
}

// The past of a store: its revisions, lists and resources at a revision, and changes, as far as the caller may read them.
func TestPast(t *testing.T) {
	t.Parallel()
	everyTransport(t, catalog(t), func(t *testing.T, s *site) {
		const a = "/demo/v1/album/a"
		require.Equal(t, http.StatusOK, s.put(a, `{"metadata":{"n":"1"}}`).code)
		require.Equal(t, http.StatusOK, s.put("/demo/v1/album/ab", `{}`).code)
		newest := func() int64 { return int64(s.get("/revisions").object(t)["newest"].(float64)) }
		first := newest()
		require.Equal(t, http.StatusOK, s.put(a, `{"metadata":{"n":"2"}}`).code)
		require.Equal(t, http.StatusOK, s.put("/demo/v1/album/secret", `{}`, "x-consul-token", "root").code)
		require.Equal(t, http.StatusNoContent, s.delete(a).code)

		require.Equal(t, http.StatusNotFound, s.get(a).code)
		at := func(path string) string { return fmt.Sprintf("%s?at=%d", path, first) }
		require.Equal(t, map[string]any{"n": "1"}, s.get(at(a)).object(t)["metadata"])
		require.Equal(t, http.StatusNotFound, s.get(at("/demo/v1/album/none")).code)
		require.Len(t, s.get(at("/demo/v1/album")).object(t)["resources"], 2)
		require.Len(t, s.get("/demo/v1/album").object(t)["resources"], 1)
		page := s.get(at("/demo/v1/album") + "&limit=1").object(t)
		require.Len(t, page["resources"], 1)
		require.Len(t, s.get(at("/demo/v1/album") + "&limit=1&continue=" + page["continue"].(string)).object(t)["resources"], 1)

		require.Equal(t, []string{"created a -1", "changed a 1-2", "deleted a 2-"}, changeLines(t, s.unchecked().get(a+"/history")))
		require.Equal(t, []string{"created a -1", "created ab -", "changed a 1-2", "deleted a 2-"}, changeLines(t, s.unchecked().get("/demo/v1/album?changes")))
		require.Equal(t, []string{"changed a 1-2", "deleted a 2-"}, changeLines(t, s.unchecked().get(fmt.Sprintf("/demo/v1/album?changes&after=%d", first))))
		require.Equal(t, []string{"created a -1", "created ab -"}, changeLines(t, s.unchecked().get(fmt.Sprintf("/demo/v1/album?changes&until=%d", first))))
		require.Equal(t, http.StatusGone, s.get(fmt.Sprintf("%s?at=%d", a, newest()+100)).code)
		wildcard := s.get(at(a) + "&ns=*")
		require.Equal(t, s.get(a+"?ns=*").code, wildcard.code)
		require.Contains(t, wildcard.message(t), "a read needs one")
		for path, want := range map[string]string{
			a + "?at=0": "expected a revision", "/demo/v1/album?at=x": "expected a revision", "/demo/v1/album?changes&limit=1": "unknown query parameter \"limit\"",
			"/demo/v1/album?after=1&limit=1": "unknown query parameter \"after\"", a + "/history?at=1": "unknown query parameter \"at\"",
		} {
			require.Contains(t, s.get(path).message(t), want, path)
		}
	})
}

// The differences between two revisions: what was created, changed, deleted, or deleted and created again, as far as the caller may read it.
func TestDiff(t *testing.T) {
	t.Parallel()
	everyTransport(t, catalog(t), func(t *testing.T, s *site) {
		put := func(name, n string) {
			require.Equal(t, http.StatusOK, s.put("/demo/v1/album/"+name, fmt.Sprintf(`{"metadata":{"n":%q}}`, n), "x-consul-token", "root").code)
		}
		remove := func(name string) { require.Equal(t, http.StatusNoContent, s.delete("/demo/v1/album/"+name).code) }
		newest := func() int64 { return int64(s.get("/revisions").object(t)["newest"].(float64)) }
		for _, name := range []string{"changed", "deleted", "replaced", "same", "secret"} {
			put(name, "1")
		}
		from := newest()
		put("created", "1")
		put("changed", "2")
		put("secret", "2")
		remove("deleted")
		remove("replaced")
		put("replaced", "2")
		put("passing", "1")
		remove("passing")
		to := newest()
		put("same", "2")
		diff := func(query string, headers ...string) []string {
			a := s.unchecked().get("/demo/v1/album?diff&"+query, headers...)
			require.Equal(t, http.StatusOK, a.code, a.body)
			var found []string
			for line := range strings.Lines(a.body) {
				var d struct {
					Change           string
					Resource, Before struct {
						ID       struct{ Name string }
						Metadata map[string]string
					}
				}
				require.NoError(t, json.Unmarshal([]byte(line), &d), line)
				name := d.Resource.ID.Name
				if d.Change == "deleted" {
					name = d.Before.ID.Name
				}
				found = append(found, fmt.Sprint(d.Change, " ", name, " ", d.Before.Metadata["n"], "-", d.Resource.Metadata["n"]))
			}
			return found
		}
		between := fmt.Sprintf("from=%d&to=%d", from, to)
		all := []string{"changed changed 1-2", "created created -1", "deleted deleted 1-", "replaced replaced 1-2"}
		require.Equal(t, all, diff(between))
		require.Equal(t, append(all[:4:4], "changed secret 1-2"), diff(between, "x-consul-token", "root"))
		require.Equal(t, append(all[:4:4], "changed same 1-2"), diff(fmt.Sprintf("from=%d", from)))
		require.Equal(t, all[2:3], diff(between+"&name_prefix=del"))
		require.Empty(t, diff(fmt.Sprintf("from=%d&to=%d", to, to)))
		require.Equal(t, http.StatusGone, s.get(fmt.Sprintf("/demo/v1/album?diff&from=%d", newest()+100)).code)
		for query, want := range map[string]string{
			"diff": "diff needs from", "diff&from=0": "expected a revision", fmt.Sprintf("diff&from=%d&to=%d", to, from): "to must be from or more",
			"diff&from=1&limit=1": "unknown query parameter \"limit\"", "from=1": "unknown query parameter \"from\"",
		} {
			require.Contains(t, s.get("/demo/v1/album?"+query).message(t), want, query)
		}
	})
}

// Lists and watches of all types, of a group, and of all versions of a kind, and the types with their numbers.
func TestWildcardTypes(t *testing.T) {
	t.Parallel()
	everyTransport(t, catalog(t), func(t *testing.T, s *site) {
		require.Equal(t, http.StatusOK, s.put("/demo/v1/album/a", `{"data":{"title":"one"}}`).code)
		require.Equal(t, http.StatusOK, s.unchecked().put("/demo/v1/Label/b", `{"data":{"value":{"x":1}}}`).code, "the case of a kind is ignored")
		titles := func(path string) (all []string) {
			for _, res := range s.get(path).object(t)["resources"].([]any) {
				id := res.(map[string]any)["id"].(map[string]any)
				all = append(all, fmt.Sprint(id["name"], res.(map[string]any)["data"]))
			}
			return all
		}
		both := []string{"amap[title:one]", "bmap[value:map[x:1]]"}
		require.Equal(t, both, titles("/*/*/*?partition=*&namespace=*"))
		require.Equal(t, both, titles("/demo/*/*?partition=*&namespace=*"))
		require.Equal(t, both[:1], titles("/demo/*/album?partition=*&namespace=*"))
		require.Equal(t, http.StatusNotFound, s.get("/demo/*/albums").code)
		w := s.watch(t, "/*/*/*?watch&partition=*&namespace=*")
		require.Equal(t, "upsert a", event(w.next()))
		require.Equal(t, "upsert b", event(w.next()))
		var counts []string
		for _, each := range s.get("/types").object(t)["types"].([]any) {
			counts = append(counts, fmt.Sprint(each.(map[string]any)["path"], " ", each.(map[string]any)["count"]))
		}
		require.Equal(t, []string{"demo/v1/album 1", "demo/v1/label 1", "demo/v1/studio 0"}, counts)
		require.Equal(t, map[string]any{"name": "", "rules": []any{}}, s.get("/whoami").object(t))
	})
}

// With an open registry, the case of a kind in a path does not matter if one such kind is stored.
func TestKindsInAnyCase(t *testing.T) {
	t.Parallel()
	everyTransport(t, registry.NewOpen(registry.Type{}), func(t *testing.T, s *site) {
		kind := func(a answer) any {
			require.Equal(t, http.StatusOK, a.code, a.body)
			return a.object(t)["id"].(map[string]any)["type"].(map[string]any)["kind"]
		}
		require.Equal(t, http.StatusNotFound, s.get("/core/v1/configmap/a").code, "no such kind is stored, and this one is not valid")
		require.Equal(t, "ConfigMap", kind(s.put("/core/v1/ConfigMap/a", `{}`)))
		require.Equal(t, "Zebra", kind(s.put("/core/v1/Zebra/a", `{}`)))
		require.Equal(t, "Configmap", kind(s.put("/other/v1/Configmap/a", `{}`)))
		for _, path := range []string{"configmap", "CONFIGMAP", "Configmap", "ConfigMap"} {
			require.Equal(t, "ConfigMap", kind(s.get("/core/v1/"+path+"/a?consistent")), path)
			require.Equal(t, "ConfigMap", kind(s.put("/core/v1/"+path+"/b", `{"metadata":{"n":"2"}}`)), path)
			require.Len(t, s.get("/core/v1/" + path).object(t)["resources"], 2, path)
			require.Len(t, s.get("/core/*/" + path + "?partition=*&namespace=*").object(t)["resources"], 2, path)
		}
		require.Equal(t, http.StatusNoContent, s.delete("/core/v1/configmap/b").code)
		require.Equal(t, http.StatusNotFound, s.get("/core/v1/ConfigMap/b").code)
		require.Contains(t, s.put("/core/v1/configmap/c", `{"id":{"type":{"kind":"Zebra"}}}`).message(t), `id.type.kind is "Zebra"`)

		s.store(t, "core", "CONFIGMAP", "c")
		require.Contains(t, s.get("/core/v1/configmap/a").message(t), "the store has CONFIGMAP, ConfigMap")
		require.Equal(t, "ConfigMap", kind(s.get("/core/v1/ConfigMap/a")))
		require.Equal(t, http.StatusOK, s.get("/core/v1/CONFIGMAP/c").code)
	})
}

// store writes a resource to the store, below the service.
func (s *site) store(t *testing.T, group, kind, name string) {
	t.Helper()
	_, err := s.backend.WriteCAS(t.Context(), &resourcepb.Resource{Id: &resourcepb.ID{
		Type: &resourcepb.Type{Group: group, GroupVersion: "v1", Kind: kind}, Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"}, Name: name, Uid: "u",
	}})
	require.NoError(t, err)
}

// The tree of a resource contains every generation up to a depth.
func TestOwnedTree(t *testing.T) {
	t.Parallel()
	s := memorySite(t, registry.NewOpen(registry.Type{}), nil)
	owner := ""
	for _, name := range []string{"a", "b", "c", "d"} {
		body := `{}`
		if owner != "" {
			body = fmt.Sprintf(`{"owner":{"name":%q,"type":{"group":"demo","groupVersion":"v1","kind":"Album"},"tenancy":{"partition":"default","namespace":"default"}}}`, owner)
		}
		require.Equal(t, http.StatusOK, s.put("/demo/v1/Album/"+name, body).code)
		owner = name
	}
	names := func(path string) string {
		var all []string
		for _, res := range s.get("/demo/v1/Album/a/owned" + path).object(t)["resources"].([]any) {
			all = append(all, res.(map[string]any)["id"].(map[string]any)["name"].(string))
		}
		return strings.Join(all, " ")
	}
	require.Equal(t, "b", names(""))
	require.Equal(t, "b c", names("?depth=2"))
	require.Equal(t, "b c d", names("?depth=16"))
	for path, want := range map[string]string{"?depth=17": "from 1 to 16", "?depth=0": "from 1 to 16", "?depth=2&limit=1": "unknown query parameter \"limit\""} {
		require.Contains(t, s.get("/demo/v1/Album/a/owned"+path).message(t), want)
	}
}

// The tree contains two resources with the same uid, and what they own.
func TestOwnedTreeWithEqualUids(t *testing.T) {
	t.Parallel()
	s := memorySite(t, registry.NewOpen(registry.Type{}), nil)
	id := func(name, uid string) *resourcepb.ID {
		return &resourcepb.ID{
			Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Album"}, Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"}, Name: name, Uid: uid,
		}
	}
	for _, res := range []*resourcepb.Resource{
		{Id: id("a", "1")},
		{Id: id("b", "2"), Owner: id("a", "1")}, {Id: id("c", "2"), Owner: id("a", "1")},
		{Id: id("d", "3"), Owner: id("b", "2")}, {Id: id("e", "4"), Owner: id("c", "2")},
	} {
		_, err := s.backend.WriteCAS(t.Context(), res)
		require.NoError(t, err)
	}
	var all []string
	for _, res := range s.get("/demo/v1/Album/a/owned?depth=3").object(t)["resources"].([]any) {
		all = append(all, res.(map[string]any)["id"].(map[string]any)["name"].(string))
	}
	require.Equal(t, []string{"b", "c", "d", "e"}, all)
}

// A watch returns server-sent events to a client that accepts them, and resumes after the last one that it has got.
func TestServerSentEvents(t *testing.T) {
	t.Parallel()
	s := memorySite(t, catalog(t), nil)
	read := func(last string) (*bufio.Scanner, func()) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/demo/v1/album?watch", nil)
		require.NoError(t, err)
		r.Header.Set("Accept", "text/event-stream")
		if last != "" {
			r.Header.Set("Last-Event-ID", last)
		}
		got, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.Equal(t, "text/event-stream", got.Header.Get("Content-Type"))
		return bufio.NewScanner(got.Body), func() { got.Body.Close() }
	}
	next := func(lines *bufio.Scanner) (id, data string) {
		for lines.Scan() && lines.Text() != "" {
			if text, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id = text
			}
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				data = text
			}
		}
		return id, data
	}
	require.Equal(t, http.StatusOK, s.put("/demo/v1/album/a", `{}`).code)
	lines, stop := read("")
	_, data := next(lines)
	require.Contains(t, data, `{"upsert":{"resource":{"id":{`)
	id, data := next(lines)
	require.Contains(t, data, `{"endOfSnapshot":{}`)
	require.NotEmpty(t, id)
	stop()
	require.Equal(t, http.StatusOK, s.put("/demo/v1/album/b", `{}`).code)
	lines, stop = read(id)
	defer stop()
	_, data = next(lines)
	require.Contains(t, data, `"name":"b"`)
}

// A client of server-sent events that connects again resumes after the last event that it has got, also if its first request had a cursor: a
// browser repeats the query of that request.
func TestLastEventPrecedesCursor(t *testing.T) {
	t.Parallel()
	s := memorySite(t, catalog(t), nil)
	read := func(cursor, last string) (id, data string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/demo/v1/album?watch&cursor="+cursor, nil)
		require.NoError(t, err)
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("Last-Event-ID", last)
		got, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer got.Body.Close()
		for lines := bufio.NewScanner(got.Body); lines.Scan() && lines.Text() != ""; {
			if text, ok := strings.CutPrefix(lines.Text(), "id: "); ok {
				id = text
			}
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				data = text
			}
		}
		return id, data
	}
	cursor := s.get("/demo/v1/album?limit=1").object(t)["cursor"].(string)
	require.Equal(t, http.StatusOK, s.put("/demo/v1/album/a", `{}`).code)
	require.Equal(t, http.StatusOK, s.put("/demo/v1/album/b", `{}`).code)
	id, data := read(cursor, "")
	require.Contains(t, data, `"name":"a"`)
	_, data = read(cursor, id)
	require.Contains(t, data, `"name":"b"`, "the first event was repeated")
}

// The tree of a resource omits what a resource owns whose type the caller may read but not list.
func TestOwnedTreeOfUnlistedType(t *testing.T) {
	t.Parallel()
	types := registry.NewOpen(registry.Type{MayList: func(_ registry.Caller, typ *resourcepb.Type, _ *resourcepb.Tenancy) error {
		if typ.GetKind() == "Track" {
			return registry.ErrDenied
		}
		return nil
	}})
	s := memorySite(t, types, nil)
	owner := func(kind, name string) string {
		return fmt.Sprintf(`{"owner":{"name":%q,"type":{"group":"demo","groupVersion":"v1","kind":%q},"tenancy":{"partition":"default","namespace":"default"}}}`, name, kind)
	}
	require.Equal(t, http.StatusOK, s.put("/demo/v1/Album/a", `{}`).code)
	require.Equal(t, http.StatusOK, s.put("/demo/v1/Track/b", owner("Album", "a")).code)
	require.Equal(t, http.StatusOK, s.put("/demo/v1/Album/c", owner("Track", "b")).code)
	require.Equal(t, http.StatusOK, s.put("/demo/v1/Album/d", owner("Album", "a")).code)
	require.Equal(t, http.StatusOK, s.put("/demo/v1/Album/e", owner("Album", "d")).code)
	var all []string
	for _, res := range s.get("/demo/v1/Album/a/owned?depth=3").object(t)["resources"].([]any) {
		all = append(all, res.(map[string]any)["id"].(map[string]any)["name"].(string))
	}
	require.Equal(t, []string{"d", "b", "e"}, all)
}
