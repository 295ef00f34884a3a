package web_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// A resource without a payload is valid, and every payload survives a round trip in both forms.
func TestPayloads(t *testing.T) {
	t.Parallel()
	s := memorySite(t, catalog(t), nil)
	for _, body := range []string{`{}`, `{"data":null}`} {
		got := s.unchecked().put("/demo/v1/album/none", body)
		require.Equal(t, http.StatusOK, got.code, got.body)
		require.NotContains(t, got.object(t), "data")
	}
	require.Equal(t, map[string]any{}, s.put("/demo/v1/album/empty", `{"data":{}}`).object(t)["data"])

	require.Equal(t, http.StatusOK, s.put("/demo/v1/album/all", `{"data":`+everything+`}`).code)
	got := s.get("/demo/v1/album/all").object(t)["data"].(map[string]any)
	require.Equal(t, "18446744073709551615", got["totalPlays"])
	require.Equal(t, "Ω <b>", got["title"])
	require.Equal(t, "NaN", got["rating"])
	require.Contains(t, got, "live")
	require.Contains(t, got, "value")

	typed := s.unchecked().put("/demo/v1/album/typed", `{"data":{"@type":"type.googleapis.com/demo.v1.Album","title":"x"}}`)
	require.Equal(t, map[string]any{"title": "x"}, typed.object(t)["data"])
}

// The answer for a deeply nested payload has about the payload's size. It is not indented, which would increase the size a hundredfold.
func TestDeepPayloadsStaySmall(t *testing.T) {
	t.Parallel()
	s := memorySite(t, catalog(t), nil).unchecked()
	data := strings.Repeat(`{"sequel":`, 3000) + `{}` + strings.Repeat(`}`, 3000)
	require.Equal(t, http.StatusOK, s.put("/demo/v1/album/deep", `{"data":`+data+`}`).code)
	for _, path := range []string{"/demo/v1/album/deep", "/demo/v1/album"} {
		got := s.get(path)
		require.Contains(t, got.body, data, path)
		require.Less(t, len(got.body), 2*len(data), path)
		require.True(t, json.Valid([]byte(got.body)), path)
	}
}

// A payload of an unknown message survives a round trip byte for byte.
func TestUnknownPayloadsSurvive(t *testing.T) {
	t.Parallel()
	everyTransport(t, catalog(t), func(t *testing.T, s *site) {
		data := &anypb.Any{TypeUrl: "type.googleapis.com/demo.v1.Album", Value: append([]byte("\x0a\x01x"), unknownFields(t)...)}
		id := &resourcepb.ID{Type: typeOf("Album"), Name: "odd", Tenancy: &resourcepb.Tenancy{}}
		written, err := s.client.Write(t.Context(), &resourcepb.WriteRequest{Resource: &resourcepb.Resource{Id: id, Data: data}})
		require.NoError(t, err)
		got := s.get("/demo/v1/album/odd")
		require.Equal(t, map[string]any{"@type": data.TypeUrl, "@value": base64.StdEncoding.EncodeToString(data.Value)}, got.object(t)["data"])
		again := s.put("/demo/v1/album/odd", got.body)
		require.Equal(t, http.StatusOK, again.code, again.body)
		read, err := s.client.Read(t.Context(), &resourcepb.ReadRequest{Id: id})
		require.NoError(t, err)
		require.True(t, proto.Equal(data, read.GetResource().GetData()))
		require.NotEqual(t, written.GetResource().GetVersion(), read.GetResource().GetVersion())
	})
}

// An open registry accepts every type, with the kind in camel case. Payloads have @type.
func TestOpenRegistry(t *testing.T) {
	t.Parallel()
	everyTransport(t, registry.NewOpen(registry.Type{}), func(t *testing.T, s *site) {
		const path = "/apps.example-1/v1/DeployMent/shop"
		free := s.put(path, `{"data":{"@type":"type.googleapis.com/google.protobuf.Struct","value":{"a":[1,"x"]}}}`)
		require.Equal(t, http.StatusOK, free.code, free.body)
		require.Equal(t, "DeployMent", free.object(t)["id"].(map[string]any)["type"].(map[string]any)["kind"])
		require.Equal(t, map[string]any{"@type": "type.googleapis.com/google.protobuf.Struct", "value": map[string]any{"a": []any{1.0, "x"}}}, free.object(t)["data"])
		unknown := s.put(path, `{"data":{"@type":"example.com/no.such.Message","@value":"AP8="}}`)
		require.Equal(t, http.StatusOK, unknown.code, unknown.body)
		require.Equal(t, map[string]any{"@type": "example.com/no.such.Message", "@value": "AP8="}, unknown.object(t)["data"])
		require.Equal(t, unknown.object(t)["data"], s.put(path, unknown.body).object(t)["data"])
		empty := s.put(path, `{"data":{"@type":"","@value":""}}`)
		require.Equal(t, map[string]any{}, empty.object(t)["data"])
		again := s.put(path, empty.body)
		require.Equal(t, http.StatusOK, again.code, again.body)
		require.Equal(t, map[string]any{}, again.object(t)["data"])
		untyped := s.put(path, `{"data":{"a":1}}`)
		require.Equal(t, map[string]any{"@type": "type.googleapis.com/google.protobuf.Struct", "value": map[string]any{"a": 1.0}}, untyped.object(t)["data"])
		require.Equal(t, http.StatusNotFound, s.get("/apps.example-1/v1/replicaset/shop").code, "kinds are in camel case, unless such a kind is stored")
		mismatch := s.get("/apps.example-1/v2/DeployMent/shop")
		require.Equal(t, http.StatusConflict, mismatch.code, "it depends on what is stored")
		require.Equal(t, "GROUP_VERSION_MISMATCH", mismatch.object(t)["error"].(map[string]any)["reason"])
		require.Len(t, s.get("/apps.example-1/v1/DeployMent").object(t)["resources"], 1)
		require.Empty(t, s.get(path + "/owned").object(t)["resources"])
		require.Equal(t, "upsert", func() string {
			for kind := range s.watch(t, "/apps.example-1/v1/DeployMent?watch").next() {
				return kind
			}
			return ""
		}())
	})
}
