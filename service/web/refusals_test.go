package web_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/service/web"
)

// An invalid request is rejected with a code and a text, and stores nothing.
func TestRefusals(t *testing.T) {
	t.Parallel()
	s := memorySite(t, catalog(t), nil)
	const path = "/demo/v1/album/blue"
	for _, tc := range []struct {
		method, path string
		code         int
		says         string
	}{
		{"GET", "/", 404, "nothing is at /"},
		{"GET", "/demo/v1", 404, "nothing is at"},
		{"GET", "/demo/v1/album/a/other", 404, "nothing is at"},
		{"GET", "/demo/v1/album/a/status", 404, "nothing is at"},
		{"GET", "/demo/v1/album/a/owned/x", 404, "nothing is at"},
		{"GET", "/demo/v1/album/%2e%2e%2f%2e%2e", 400, "id.name"},
		{"GET", "/demo/v1/album/a%2Fb", 400, "id.name"},
		{"GET", "/demo/v1/album/a%00b", 400, "id.name"},
		{"GET", "/demo/v1/album/%ff", 400, "the path is not UTF-8"},
		{"GET", "/demo/v1/album%2Fa", 404, "no type is at"},
		{"GET", "/demo/v2/album/a", 404, "no type is at /demo/v2/album"},
		{"GET", path + "?version=1", 400, `unknown query parameter "version"`},
		{"DELETE", path + "?verison=1", 400, `unknown query parameter "verison"`},
		{"DELETE", path + "?version=1&version=2", 400, "version is given 2 times"},
		{"DELETE", path + "?version=", 400, "version has no value"},
		{"DELETE", path + "?uid", 400, "uid has no value"},
		{"GET", path + "?ns=a&namespace=a", 422, "ns and namespace"},
		{"GET", "/demo/v1/album?watch&limit=1", 422, `unknown query parameter "limit": with watch`},
		{"GET", "/demo/v1/album?at=1&cursor=x", 422, `unknown query parameter "cursor": without watch`},
		{"GET", path + "/history?after=2&until=1", 422, "until invalid"},
		{"GET", path + "?ns=%zz", 400, "malformed query"},
		{"GET", path + "?ns=a;b", 400, "malformed query"},
		{"GET", path + "?ns=UPPER", 400, "tenancy.namespace"},
		{"GET", path + "?consistent=false", 400, "takes no value"},
		{"GET", "/demo/v1/album?limit=0", 400, "limit invalid"},
		{"GET", "/demo/v1/album?limit=99999999999", 400, "limit invalid"},
		{"GET", "/demo/v1/album?name_prefix=A", 400, "name_prefix"},
		{"POST", path, 405, "DELETE, GET, HEAD, PUT"},
		{"PATCH", "/demo/v1/album", 405, "GET, HEAD"},
		{"PUT", "/demo/v1/album", 405, "GET, HEAD"},
		{"DELETE", path + "/owned", 405, "GET, HEAD"},
		{"GET", path + "/status/k", 405, "PUT"},
		{"POST", "/openapi.json", 405, "GET, HEAD"},
		{"PUT", path + "/status/k?uid=x", 400, "the body is empty"},
	} {
		got := s.do(tc.method, tc.path, "")
		require.Equal(t, tc.code, got.code, "%s %s: %s", tc.method, tc.path, got.body)
		require.Contains(t, got.message(t), tc.says, "%s %s", tc.method, tc.path)
		require.Equal(t, "application/json", got.header.Get("Content-Type"))
		require.Equal(t, "nosniff", got.header.Get("X-Content-Type-Options"))
		require.Equal(t, "no-store", got.header.Get("Cache-Control"))
		if tc.code == http.StatusMethodNotAllowed {
			require.Equal(t, tc.says, got.header.Get("Allow"))
		}
	}
	require.Empty(t, s.get("/demo/v1/album?ns=*").object(t)["resources"])
}

// An invalid body is rejected with the position and the name of the error, wherever it is. Contents that the document permits and the service refuses
// have a code of their own.
func TestInvalidBodies(t *testing.T) {
	t.Parallel()
	s := memorySite(t, catalog(t), nil)
	const path = "/demo/v1/album/blue"
	for body, says := range map[string]string{
		``:                                "the body is empty: expected JSON",
		"\n \t":                           "the body is empty: expected JSON",
		`[]`:                              "body invalid: line 1, column 1: expected an object",
		`null`:                            "body invalid: line 1, column 1: expected an object",
		"{\n \"data\": {],\n":             "body invalid: line 2, column 11: malformed JSON",
		"{\n \"data\": {}":                "body invalid: line 2, column 12: malformed JSON: unexpected end",
		`{} {}`:                           "body invalid: line 1, column 4: malformed JSON",
		"{\"ä\":\n\n  1}":                 `body invalid: line 1, column 2: unknown field "ä"`,
		`{"metdata":{}}`:                  `body invalid: line 1, column 2: unknown field "metdata"`,
		`{"metadata":{"k":1}}`:            `body invalid: line 1, column 18: invalid value for string field value: 1`,
		`{"data":{"title":""},"data":{}}`: `body invalid: line 1, column 22: duplicate field "data"`,
		"{\"metadata\":{\"ä\":\"ö\"},\n  \"data\": {\n    \"title\": \"ü\", \"nope\": 1}}":                `body invalid: line 3, column 19: unknown field "nope"`,
		"{\"data\": {\"title\": \"Ω\"}, \"nope\": 1}":                                                     `body invalid: line 1, column 26: unknown field "nope"`,
		`{"data":{"title":"a","title":"b"}}`:                                                              `body invalid: line 1, column 22: duplicate field "title"`,
		`{"data":{"disc":1,"vinyl":"x"}}`:                                                                 `body invalid: line 1, column 19: error parsing "vinyl", oneof demo.v1.Album.medium is already set`,
		`{"data":{"totalPlays":-1}}`:                                                                      `invalid value for uint64 field totalPlays: -1`,
		`{"data":{"genre":"POLKA"}}`:                                                                      `invalid value for enum field genre: "POLKA"`,
		`{"data":{},"nope":1}`:                                                                            `body invalid: line 1, column 12: unknown field "nope"`,
		`{"data":{"@type":"type.googleapis.com/demo.v1.Album","@value":"","@value":"CgF4"}}`:              `body invalid`,
		"{\"data\":{\"@type\":\"type.googleapis.com/demo.v1.Album\xff\",\"@value\":\"\"}}":                `invalid UTF-8`,
		`{"data":[1],"nope":1}`:                                                                           `body invalid: line 1, column 9: data is not an object`,
		`{"data":[1]}`:                                                                                    `body invalid: line 1, column 9: data is not an object`,
		`{"data":1}`:                                                                                      `body invalid: line 1, column 9: data is not an object`,
		`{"data":{"@type":"type.googleapis.com/ashlar.resource.v1.Reference"}}`:                           `resource.data is of wrong type`,
		`{"data":{"@type":"type.googleapis.com/no.such.Message","a":1}}`:                                  `unable to resolve`,
		`{"data":{"@type":"type.googleapis.com/no.such.Message","@value":"AA=="}}`:                        `resource.data is of wrong type`,
		`{"data":{"@type":"type.googleapis.com/demo.v1.Album","@value":"/w=="}}`:                          `does not decode`,
		`{"data":{"@type":"type.googleapis.com/demo.v1.Album","@value":"%"}}`:                             `data.@value is not base64`,
		`{"status":{"k":{"observedGeneration":"01M82HRGJXFVDY77YBAED0BY8Z"}}}`:                            `resource.status`,
		`{"metadata":{"bad":"yes"}}`:                                                                      `it is bad`,
		`{"owner":{"name":"x","tenancy":{},"type":{"group":"demo","groupVersion":"v1","kind":"Studio"}}}`: `resource.owner does not exist`,
		"{\"metadata\":{\"k\":\"\xff\"}}":                                                                 `invalid UTF-8`,
		`{"data":` + strings.Repeat(`{"sequel":`, 20_000) + `1` + strings.Repeat(`}`, 20_000) + `}`:       `depth`,
	} {
		code := http.StatusBadRequest
		switch says {
		case `resource.data is of wrong type`, `unable to resolve`, `does not decode`, `resource.status`, `it is bad`, `resource.owner does not exist`:
			code = http.StatusUnprocessableEntity
		}
		got := s.put(path, body)
		require.Equal(t, code, got.code, "%.200s: %s", body, got.body)
		require.Contains(t, got.message(t), says, "%.200s", body)
	}
	label := s.put("/demo/v1/label/a", `{"data":{"free":"form"}}`)
	require.Equal(t, http.StatusBadRequest, label.code)
	require.Contains(t, label.message(t), `other fields than "value", which has the whole google.protobuf.Struct`)
	for unit, says := range map[string]string{`"namespace":"default"`: "cannot have a namespace", `"partition":"Ä"`: "id.tenancy.partition"} {
		got := s.put("/demo/v1/label/a", `{"id":{"tenancy":{`+unit+`}}}`)
		require.Equal(t, http.StatusUnprocessableEntity, got.code, "the document permits it in a body")
		require.Contains(t, got.message(t), says)
	}
	require.Contains(t, s.put("/demo/v1/label/a", "{\"data\":{\n\"value\":{\"a\":1,\"a\":2}}}").message(t), `line 2, column 16: duplicate map key "a"`)
	require.Contains(t, s.put("/demo/v1/album/a/status/k?uid=x", "{\n\"nope\":1}").message(t), `line 2, column 1: unknown field "nope"`)
	require.Equal(t, http.StatusNotFound, s.get(path).code)
}

// Text that is not UTF-8 is rejected as the client's error, even if the service is behind a connection that cannot carry it.
func TestInvalidUTF8(t *testing.T) {
	t.Parallel()
	everyTransport(t, catalog(t), func(t *testing.T, s *site) {
		const path = "/demo/v1/album/blue"
		for _, request := range [][2]string{
			{"GET", "/demo/v1/album/%ff"}, {"GET", path + "?uid=%ff"}, {"GET", path + "?ns=%ff"}, {"PUT", path + "?version=%ff"},
			{"DELETE", path + "?version=%ff"}, {"GET", "/demo/v1/album?limit=1&continue=%ff"}, {"GET", "/demo/v1/album?name_prefix=%ff"},
			{"GET", "/demo/v1/album?watch&cursor=%ff"}, {"PUT", path + "/status/%ff?uid=x"}, {"GET", "/demo/v1/album?%ff=x"},
		} {
			got := s.do(request[0], request[1], "{}")
			require.Equal(t, http.StatusBadRequest, got.code, "%s: %s", request, got.body)
		}
	})
}

// A body has a maximum size, a content type and an encoding.
func TestBodyContent(t *testing.T) {
	t.Parallel()
	s := memorySite(t, catalog(t), &web.Options{MaxBody: 100})
	const path = "/demo/v1/album/blue"
	body := func(n int) string { return `{"data":{"title":"` + strings.Repeat("x", n-21) + `"}}` }
	require.Equal(t, http.StatusOK, s.put(path, body(100)).code)
	got := s.put(path, body(101))
	require.Equal(t, http.StatusRequestEntityTooLarge, got.code)
	require.Contains(t, got.message(t), "the body has more than 100 bytes")
	large := memorySite(t, catalog(t), nil)
	require.Equal(t, http.StatusOK, large.put(path, body(1<<20-200)).code)
	require.Equal(t, http.StatusRequestEntityTooLarge, large.put(path, body(1<<20+1)).code, "of the store")
	require.Equal(t, http.StatusRequestEntityTooLarge, large.put(path, body(4<<20+1)).code)

	for declared, code := range map[string]int{
		"application/json; charset=UTF-8":   http.StatusOK,
		"application/x-www-form-urlencoded": http.StatusOK, // curl -d
		"application/json; charset=latin1":  http.StatusUnsupportedMediaType,
		"text/yaml":                         http.StatusUnsupportedMediaType,
		"application/x-protobuf":            http.StatusUnsupportedMediaType,
		";":                                 http.StatusUnsupportedMediaType,
	} {
		got := s.unchecked().put(path, `{}`, "Content-Type", declared)
		require.Equal(t, code, got.code, "%s: %s", declared, got.body)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write([]byte(`{}`))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Equal(t, http.StatusUnsupportedMediaType, s.put(path, packed.String(), "Content-Encoding", "gzip").code)
}
