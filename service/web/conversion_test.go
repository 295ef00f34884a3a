package web_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// A kind has a path for each of its group versions, with the same resources.
func TestPathsOfTwoVersions(t *testing.T) {
	t.Parallel()
	type older struct{ Title string }
	type newer struct {
		Name  string
		Plays int `json:",omitempty"`
	}
	version := func(v string) *resourcepb.Type {
		return &resourcepb.Type{Group: "demo", GroupVersion: v, Kind: "Song"}
	}
	types, err := registry.New(
		registry.Type{Type: version("v2"), Proto: &structpb.Struct{}, Scope: registry.ScopeNamespace},
		registry.Type{
			Type: version("v1"), Proto: &structpb.Struct{}, Scope: registry.ScopeNamespace,
			Conversion: registry.ConvertJSON("v2", func(in newer) (out older, err error) {
				if in.Name == "" {
					err = errors.New("no name")
				}
				return older{in.Name}, err
			}, func(in older, _ *newer) (out newer, err error) {
				if in.Title == "" {
					err = errors.New("no title")
				}
				return newer{Name: in.Title}, err
			}),
		},
	)
	require.NoError(t, err)
	s := newSite(t, types, backends["memory"], transports["in the process"], nil)
	require.Equal(t, http.StatusOK, s.put("/demo/v2/song/a", `{"data": {"value": {"Name": "x", "Plays": 7}}}`).code)
	read := s.get("/demo/v1/song/a?consistent")
	require.Contains(t, read.body, `"Title": "x"`)
	require.Contains(t, read.body, `"groupVersion": "v1"`)
	require.Equal(t, http.StatusOK, s.put("/demo/v1/song/a", `{"data": {"value": {"Title": "y"}}}`).code)
	read = s.get("/demo/v2/song?consistent")
	require.Contains(t, read.body, `"Name": "y"`)
	require.Contains(t, read.body, `"Plays": 7`)
	counted := s.get("/types").body
	require.Regexp(t, `(?s)"groupVersion": "v1",\s+"kind": "Song"\s+\},\s+"path": "demo/v1/song",\s+"count": 1`, counted)
	require.Regexp(t, `(?s)"path": "demo/v2/song",\s+"count": 1`, counted)
	require.Equal(t, http.StatusUnprocessableEntity, s.put("/demo/v1/song/b", `{"data": {"value": {}}}`).code)
	require.Equal(t, http.StatusOK, s.put("/demo/v2/song/a", `{"data": {"value": {"Plays": 1}}}`).code)
	failed := s.get("/demo/v1/song/a?consistent")
	require.Equal(t, http.StatusConflict, failed.code)
	require.Contains(t, failed.body, `"reason": "CONVERSION"`)
}
