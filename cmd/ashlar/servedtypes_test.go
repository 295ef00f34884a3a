package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/sourcecontextpb"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// A server with a directory of types accepts only these types and their payloads, by gRPC and by HTTP.
func TestServeTypes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	set, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		protodesc.ToFileDescriptorProto(sourcecontextpb.File_google_protobuf_source_context_proto),
	}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "app.binpb"), set, 0o600))
	write(t, dir, "types.yaml", "types:\n  - {type: demo.v1.Greeting, message: google.protobuf.SourceContext, scope: namespace}\n"+
		"  - {type: demo.v1.Planet, message: google.protobuf.SourceContext, scope: cluster}\n")
	s := serveStore(t, fileURL(t), "--types", dir)
	code, text := s.send("PUT", "/api/demo/v1/greeting/a", "", `{"data":{"fileName":"hello"}}`)
	require.Equal(t, http.StatusOK, code, text)
	c := s.cli(t)
	require.Equal(t, "demo/Greeting/a\n", c.ok("", "list", "*", "-o", "name"))
	planet := `{"id":{"name":"mars","type":{"group":"demo","groupVersion":"v1","kind":"Planet"},"tenancy":{"partition":"","namespace":""}}}`
	require.Equal(t, "demo/Planet \"\"/\"\"/mars created\n", c.ok(planet, "apply", "-f", "-", "-p", "", "-n", ""))
	require.Equal(t, "demo/Planet/mars\n", c.ok("", "get", "demo/Planet", "mars", "-p", "", "-n", "", "-o", "name"))
	for name, tc := range map[string]struct{ document, want string }{
		"another type":    {configMap("a", "1"), "resource type core.v1.ConfigMap not registered"},
		"another payload": {"apiVersion: demo/v1\nkind: Greeting\nmetadata: {name: b}\nspec: {}\n", "resource.data is of wrong type"},
	} {
		r := c.run(tc.document, "apply", "-f", "-")
		require.Equal(t, cli.ExitFailed, r.code, name)
		require.Contains(t, r.err, tc.want, name)
	}
	require.Contains(t, c.run("", "get", "core/ConfigMap", "a").err, "resource type core.*.ConfigMap not registered")
}
