package web_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/service/web"
)

// The document of every registry is valid and has the path of the handler.
func TestDocumentIsValid(t *testing.T) {
	t.Parallel()
	none, err := registry.New()
	require.NoError(t, err)
	for name, types := range map[string]*registry.Registry{"types": catalog(t), "open": registry.NewOpen(registry.Type{}), "none": none} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := inmem.New(nil)
			t.Cleanup(func() { b.Close() })
			h := web.NewHandler(service.New(b, types, nil).Client(), types, nil)
			for path, mounted := range map[string]string{"/openapi.json": "/", "/a%20b/api/openapi.json": "/a%20b/api"} {
				w := httptest.NewRecorder()
				http.StripPrefix(strings.ReplaceAll(strings.TrimSuffix(mounted, "/"), "%20", " "), h).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
				require.Equal(t, http.StatusOK, w.Code)
				doc, err := openapi3.NewLoader().LoadFromData(w.Body.Bytes())
				require.NoError(t, err)
				require.NoError(t, doc.Validate(t.Context()))
				require.Equal(t, mounted, doc.Servers[0].URL)
			}
		})
	}
}

// The schema of a payload accepts the output of protojson for every kind of field, and nothing else.
func TestDocumentDescribesPayloads(t *testing.T) {
	t.Parallel()
	s := memorySite(t, catalog(t), nil)
	takes := func(path, body string) bool {
		r := httptest.NewRequest(http.MethodPut, s.url+path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		return s.checker.request(r) == nil
	}
	const album = "/demo/v1/album/a"
	require.True(t, takes(album, `{"data":`+everything+`}`))
	require.True(t, takes(album, `{"data":{"vinyl":"x","genre":7}}`))
	require.True(t, takes(album, `{"data":{"@type":"x","@value":"AA=="},"metadata":{"a":"b"}}`))
	require.True(t, takes("/demo/v1/label/a", `{"data":{"value":{"a":1}}}`))
	for body, want := range map[string]bool{ // the server accepts what the document describes
		`{"data":{"title":null,"tracks":null,"vinyl":null,"disc":1,"inside":{}},"metadata":null,"owner":null,"id":null}`: true,
		`{"data":null}`: true, `{"data":{"tracks":[null]}}`: false, `{"data":{"cover":"_-8"}}`: true, `{"data":{"cover":"A"}}`: false,
		`{"data":{"inside":{"a":1}}}`: false, `{"data":{"inside":{"@type":""}}}`: false,
	} {
		require.Equal(t, want, takes(album, body), body)
		require.Equal(t, want, s.put(album, body).code == http.StatusOK, body)
	}
	for _, field := range []string{
		`"title":1`, `"totalPlays":5`, `"totalPlays":"-5"`, `"genre":"POLKA"`, `"tracks":{}`, `"tracks":[1]`, `"sequel":{"sequel":{"nope":1}}`,
		`"charts":{"a":"b"}`, `"sides":{"a":{}}`, `"vinyl":"x","disc":1`, `"rating":"many"`, `"length":"1"`, `"extra":[]`, `"price":5`, `"live":"yes"`,
		`"old":[5]`, `"nope":1`, `"@type":"x"`,
	} {
		require.False(t, takes(album, `{"data":{`+field+`}}`), field)
	}
	for _, body := range []string{`{"metadata":{"a":1}}`, `{"nope":1}`, `{"data":1}`, `{"id":{"nope":1}}`, `{"status":{"k":{"conditions":[{"state":"MAYBE"}]}}}`} {
		require.False(t, takes(album, body), body)
	}
	require.False(t, takes("/demo/v1/label/a", `{"data":{"a":1}}`))
	var doc struct {
		Components struct {
			Schemas map[string]map[string]any
		}
	}
	require.NoError(t, json.Unmarshal([]byte(s.get("/openapi.json").body), &doc))
	require.Equal(t, "A record.", doc.Components.Schemas["demo.v1.Album"]["description"])
}

// A payload may have the name of one of the document's own schemas.
func TestDocumentNameCollisions(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"error", "opaque", "any"} {
		file := &descriptorpb.FileDescriptorProto{
			Name: proto.String(name + ".proto"), Syntax: proto.String("proto3"), MessageType: []*descriptorpb.DescriptorProto{{
				Name: proto.String(name), Field: []*descriptorpb.FieldDescriptorProto{{
					Name: proto.String("own"), Number: proto.Int32(1), Type: descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
					Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
				}},
			}},
		}
		desc, err := protodesc.NewFile(file, nil)
		require.NoError(t, err)
		types, err := registry.New(registry.Type{
			Type: typeOf("Odd"), Proto: dynamicpb.NewMessage(desc.Messages().Get(0)), Scope: registry.ScopeNamespace,
		})
		require.NoError(t, err)
		s := memorySite(t, types, nil)
		require.Equal(t, http.StatusOK, s.put("/demo/v1/odd/a", `{"data":{"own":"x"}}`).code, name)
		require.Equal(t, http.StatusConflict, s.put("/demo/v1/odd/a?version=x", `{}`).code, name)
	}
}

// Each type has its paths, with the units of its scope only.
func TestDocumentDescribesPaths(t *testing.T) {
	t.Parallel()
	s := memorySite(t, catalog(t), nil)
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	require.NoError(t, json.Unmarshal([]byte(s.get("/openapi.json").body), &doc))
	require.Len(t, doc.Paths, 5*3+4+2)
	for path, units := range map[string][]string{
		"/demo/v1/album": {"partition", "namespace", "ns"}, "/demo/v1/label": {"partition"}, "/demo/v1/studio": {},
	} {
		for _, unit := range []string{"partition", "namespace", "ns"} {
			listed := strings.Contains(string(doc.Paths[path]["get"]), "parameters/query-"+unit+`"`)
			require.Equal(t, strings.Contains(strings.Join(units, " "), unit), listed, "%s %s", path, unit)
		}
		require.Contains(t, doc.Paths[path+"/{name}"], "delete")
		require.Contains(t, doc.Paths[path+"/{name}/status/{key}"], "put")
	}
}
