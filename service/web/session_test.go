package web_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A resource is created, read, listed, updated, given a status and deleted, on every backend, in the process and over gRPC.
func TestResourceLifecycle(t *testing.T) {
	t.Parallel()
	everyTransport(t, catalog(t), func(t *testing.T, s *site) {
		const path = "/demo/v1/album/blue"
		missing := s.get(path)
		require.Equal(t, http.StatusNotFound, missing.code)
		require.JSONEq(t, `{"error":{"code":404,"status":"NOT_FOUND","reason":"NOT_FOUND","message":"resource not found"}}`, missing.body)

		created := s.put(path, `{"metadata":{"k":"v"},"data":`+everything+`}`)
		require.Equal(t, http.StatusOK, created.code, created.body)
		require.Equal(t, "application/json", created.header.Get("Content-Type"))
		require.True(t, strings.HasPrefix(created.body, "{\n  \"id\": {\n    \"uid\": "), created.body)
		require.True(t, strings.HasSuffix(created.body, "\n}\n"), created.body)
		read := s.get(path + "?consistent")
		require.Equal(t, created.body, read.body)
		res := read.object(t)
		require.Equal(t, map[string]any{"k": "v"}, res["metadata"])
		require.Equal(t, map[string]any{"partition": "default", "namespace": "default"}, res["id"].(map[string]any)["tenancy"])
		require.NotContains(t, read.body, `"@type": "type.googleapis.com/demo`)

		listed := s.get("/demo/v1/album?name_prefix=bl&RequireConsistent")
		require.Equal(t, []any{res}, listed.object(t)["resources"])
		require.Equal(t, "{\n  \"resources\": []\n}\n", s.unchecked().get("/demo/v1/album/?name_prefix=x").body, "a slash behind the type")

		updated := s.put(path+"?version="+created.version(t), `{"data":{"title":"two"}}`)
		require.Equal(t, http.StatusOK, updated.code, updated.body)
		stale := s.put(path+"?version="+created.version(t), `{"data":{"title":"three"}}`)
		require.Equal(t, http.StatusConflict, stale.code)
		require.Contains(t, stale.body, `"reason": "CAS_FAILURE"`)
		require.Equal(t, "CAS operation failed because the given version doesn't match what is stored", stale.message(t))

		id := updated.object(t)["id"].(map[string]any)
		report := `{"observedGeneration":"` + updated.object(t)["generation"].(string) + `","conditions":[{"type":"Ready","state":"STATE_TRUE"}]}`
		require.Equal(t, http.StatusOK, s.unchecked().put(path+"/status/consul.io/thing?uid="+id["uid"].(string), report).code)
		status := s.put(path+"/status/consul.io%2Fthing?uid="+id["uid"].(string), report)
		require.Equal(t, http.StatusOK, status.code, status.body)
		require.Contains(t, status.body, `"consul.io/thing": {`)
		require.Equal(t, status.body, s.get(path).body)
		require.Len(t, status.object(t)["status"], 1)

		require.Equal(t, http.StatusConflict, s.delete(path+"?version="+updated.version(t)).code)
		require.Equal(t, http.StatusNoContent, s.delete(path+"?uid=another").code)
		require.Equal(t, http.StatusOK, s.get(path).code, "a deletion of another uid")
		gone := s.delete(path + "?version=" + status.version(t))
		require.Equal(t, http.StatusNoContent, gone.code)
		require.Empty(t, gone.body)
		require.Equal(t, http.StatusNotFound, s.get(path).code)
		require.Equal(t, http.StatusNoContent, s.delete(path).code, "deleted already")
	})
}

// An answer of GET can be edited and written back: its version makes the write conditional.
func TestAnswersCanBeWrittenBack(t *testing.T) {
	t.Parallel()
	s := memorySite(t, catalog(t), nil)
	const path = "/demo/v1/album/blue"
	s.put(path+"?ns=jazz", `{"data":`+everything+`}`)
	first := s.get(path + "?ns=jazz")
	again := s.put(path, first.body) // the body says the namespace, too
	require.Equal(t, http.StatusOK, again.code, again.body)
	require.Equal(t, first.object(t)["data"], again.object(t)["data"])
	require.Equal(t, first.object(t)["id"], again.object(t)["id"])
	require.Equal(t, http.StatusConflict, s.put(path, first.body).code)

	require.Equal(t, http.StatusNoContent, s.delete(path+"?ns=jazz").code)
	require.Equal(t, http.StatusPreconditionFailed, s.put(path, again.body).code, "a deleted uid")
	for change, part := range map[[2]string]string{
		{"blue", "red"}:       "id.name",
		{"Album", "Label"}:    "id.type.kind",
		{`"demo"`, `"other"`}: "id.type.group",
		{`"v1"`, `"v2"`}:      "id.type.groupVersion",
	} {
		got := s.put(path+"?ns=jazz", strings.Replace(again.body, change[0], change[1], 1))
		require.Equal(t, http.StatusUnprocessableEntity, got.code)
		require.Contains(t, got.message(t), part)
	}
	for query, part := range map[string]string{"ns=rock": "id.tenancy.namespace", "uid=x": "id.uid", "version=x": "version", "partition=x": "id.tenancy.partition"} {
		got := s.put(path+"?"+query, again.body)
		require.Equal(t, http.StatusUnprocessableEntity, got.code, query)
		require.Contains(t, got.message(t), part)
	}
}

// The scope of a type determines its units of tenancy, and lists accept wildcards.
func TestTenancies(t *testing.T) {
	t.Parallel()
	s := memorySite(t, catalog(t), nil)
	for _, query := range []string{"", "?namespace=jazz", "?ns=rock&partition=west"} {
		require.Equal(t, http.StatusOK, s.put("/demo/v1/album/a"+query, `{}`).code)
	}
	require.Len(t, s.get("/demo/v1/album?partition=*&namespace=*").object(t)["resources"], 3)
	require.Len(t, s.get("/demo/v1/album?ns=*").object(t)["resources"], 2)
	require.Len(t, s.get("/demo/v1/album?ns=rock&partition=west").object(t)["resources"], 1)
	require.Equal(t, http.StatusOK, s.put("/demo/v1/label/a?partition=west", `{"data":{"value":{"free":"form"}}}`).code)
	got := s.get("/demo/v1/label/a?partition=west")
	require.Equal(t, map[string]any{"value": map[string]any{"free": "form"}}, got.object(t)["data"], got.body)
	require.Equal(t, http.StatusOK, s.put("/demo/v1/studio/a", `{"data":{"name":"x"}}`).code)
	require.Equal(t, http.StatusBadRequest, s.get("/demo/v1/label/a?ns=x").code)
	require.Equal(t, http.StatusBadRequest, s.get("/demo/v1/studio?partition=x").code)
	require.Equal(t, http.StatusNotFound, s.get("/demo/v1/album/a?ns=none").code)
}

// The pages add up to the listing, and the children of a resource are listed, of any type, with and without its uid.
func TestPagesAndOwners(t *testing.T) {
	t.Parallel()
	everyTransport(t, catalog(t), func(t *testing.T, s *site) {
		owner := s.put("/demo/v1/studio/abbey", `{}`).object(t)["id"].(map[string]any)
		const named = `{"owner":{"name":"abbey","tenancy":{},"type":{"group":"demo","groupVersion":"v1","kind":"Studio"}},"data":{"value":{}}}`
		for _, name := range []string{"a", "b", "c"} {
			got := s.put("/demo/v1/album/"+name, strings.Replace(named, `"value":{}`, `"title":"t"`, 1))
			require.Equal(t, http.StatusOK, got.code, got.body)
		}
		require.Equal(t, http.StatusOK, s.put("/demo/v1/label/d", named).code)
		names := func(path string) (found []string) {
			for token := ""; ; {
				page := s.get(path + token)
				require.Equal(t, http.StatusOK, page.code, page.body)
				for _, r := range page.object(t)["resources"].([]any) {
					found = append(found, r.(map[string]any)["id"].(map[string]any)["name"].(string))
				}
				next, more := page.object(t)["continue"].(string)
				if !more {
					return found
				}
				token = "&continue=" + next
			}
		}
		require.Equal(t, []string{"a", "b", "c"}, names("/demo/v1/album?limit=1"))
		require.Equal(t, []string{"a", "b", "c", "d"}, names("/demo/v1/studio/abbey/owned?limit=3"))
		require.Equal(t, []string{"a", "b", "c", "d"}, names("/demo/v1/studio/abbey/owned?limit=9&uid="+owner["uid"].(string)))
		require.Empty(t, names("/demo/v1/studio/abbey/owned?limit=9&uid=another"))
		require.NotContains(t, s.get("/demo/v1/studio/abbey/owned").body, "@type")
		require.Equal(t, http.StatusNotFound, s.get("/demo/v1/studio/none/owned").code)
		require.Equal(t, http.StatusUnprocessableEntity, s.get("/demo/v1/album?continue=x&limit=1").code)
	})
}

// Both headers carry tokens, and authentication errors have the codes of HTTP.
func TestTokens(t *testing.T) {
	t.Parallel()
	everyTransport(t, catalog(t), func(t *testing.T, s *site) {
		const path = "/demo/v1/album/secret"
		require.Equal(t, http.StatusForbidden, s.put(path, `{}`, "x-consul-token", "guest").code)
		require.Equal(t, http.StatusOK, s.put(path, `{}`, "x-consul-token", "root").code)
		require.Equal(t, http.StatusForbidden, s.get(path).code)
		require.Equal(t, http.StatusOK, s.get(path, "Authorization", "bearer root").code)
		require.Equal(t, http.StatusOK, s.get(path, "X-Consul-Token", "root", "Authorization", "Bearer root").code)
		require.Empty(t, s.get("/demo/v1/album").object(t)["resources"])
		require.Len(t, s.get("/demo/v1/album", "Authorization", "Bearer root").object(t)["resources"], 1)
		wrong := s.get(path, "x-consul-token", "wrong")
		require.Equal(t, http.StatusUnauthorized, wrong.code)
		require.Equal(t, "Bearer", wrong.header.Get("WWW-Authenticate"))
		require.Equal(t, http.StatusUnauthorized, s.get(path, "Authorization", "Basic cm9vdDo=").code)
		require.Equal(t, http.StatusUnauthorized, s.get(path, "x-consul-token", "röot").code)
		require.Equal(t, http.StatusBadRequest, s.get(path, "X-Consul-Token", "root", "Authorization", "Bearer guest").code)
	})
}
