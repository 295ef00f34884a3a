package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/sourcecontextpb"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// saveTypes writes a directory with a descriptor set and a types.yaml with some kinds.
func saveTypes(t *testing.T, dir string, kinds ...string) {
	t.Helper()
	set, err := proto.Marshal(&descriptorpb.FileDescriptorSet{File: []*descriptorpb.FileDescriptorProto{
		protodesc.ToFileDescriptorProto(sourcecontextpb.File_google_protobuf_source_context_proto),
	}})
	require.NoError(t, err)
	replaceFile(t, filepath.Join(dir, "app.binpb"), string(set))
	text := "types:\n"
	for _, kind := range kinds {
		text += "  - {type: demo.v1." + kind + ", message: google.protobuf.SourceContext, scope: namespace}\n"
	}
	replaceFile(t, filepath.Join(dir, "types.yaml"), text)
}

// replaceFile replaces a file by renaming another one.
func replaceFile(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", []byte(text), 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// A configuration file sets flags, those of the command line take precedence, and --check names all errors with their lines.
func TestServeConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := fileURL(t)
	file := write(t, dir, "ashlar.yaml", fmt.Sprintf(`
store: %s
any-type: true
listen: 127.0.0.1:0
http: 127.0.0.1:1        # the command line says something else
drain: 3s
rate: 1.5
audit: %s/audit.jsonl
audit-policy: [core/Secret=none, "*=payload"]
`, store, dir))
	c := &runner{t: t}
	require.Equal(t, "the configuration is valid\n", c.ok("", "serve", "--config", file, "--check"))
	require.NoFileExists(t, dir+"/audit.jsonl", "--check changes nothing")
	s := startCommand(t, "serve", "--config", file, "--http", "127.0.0.1:0", "--log-format", "json").listening()
	s.cli(t).ok(configMap("a", "1"), "apply", "-f", "-")
	require.Equal(t, "1", auditLines(t, dir+"/audit.jsonl")[0]["resource"].(map[string]any)["data"].(map[string]any)["value"].(map[string]any)["data"].(map[string]any)["text"])
	s.signal(syscall.SIGTERM)
	require.Contains(t, s.waitForLog(`"msg":"draining"`), `"for":3000000000`)
	require.Equal(t, cli.ExitOK, s.end())

	broken := write(t, dir, "broken.yaml", "any-type: perhaps\nlissten: x\naudit-policy:\n  - {a: b}\nconfig: other.yaml\n")
	r := c.run("", "serve", "--config", broken, "--check")
	require.Equal(t, cli.ExitUsage, r.code)
	for _, want := range []string{
		`broken.yaml: line 1: any-type: strconv.ParseBool: parsing "perhaps": invalid syntax`, `broken.yaml: line 2: unknown key "lissten", expected`,
		"broken.yaml: line 4: expected a text", `broken.yaml: line 5: unknown key "config"`,
	} {
		require.Contains(t, r.err, want)
	}
	types := t.TempDir()
	saveTypes(t, types, "Greeting")
	tokens := write(t, dir, "tokens.yaml", "anonymous: {rules: [{types: [demo/Greting], may: [read]}]}\n")
	r = c.run("", "serve", "--types", types, "--tokens", tokens, "--check")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, `a rule of "anonymous" is for demo/Greting, but no such type is served`)
	require.Equal(t, cli.ExitFailed, c.run("", "serve", "etcd", "--tls-cert", broken, "--tls-key", broken, "--check").code)

	var schema struct {
		Properties           map[string]struct{ Type string }
		AdditionalProperties bool
	}
	require.NoError(t, json.Unmarshal([]byte(c.ok("", "serve", "--config-schema")), &schema))
	for name, kind := range map[string]string{"store": "string", "any-type": "boolean", "rate": "number", "max-buffered": "integer", "drain": "string", "audit-policy": "array"} {
		require.Equal(t, kind, schema.Properties[name].Type, name)
	}
	require.NotContains(t, schema.Properties, "config")
}

// A running server notices changes of its token file, its types and its certificates. An invalid file changes nothing, and the log names it.
func TestServeNoticesChanges(t *testing.T) {
	t.Parallel()
	dir, types := t.TempDir(), t.TempDir()
	saveTypes(t, types, "Greeting")
	secret, hash := token()
	next, nextHash := token()
	policy := func(rest string) string {
		return fmt.Sprintf("tokens:\n  - name: admin\n    sha256: %s\n    rules: [{types: [demo/*], may: [read, list, write]}]\n%s", hash, rest)
	}
	tokens := write(t, dir, "tokens.yaml", policy(""))
	ours, theirs := newAuthority(t), newAuthority(t)
	cert, key := ours.sign("server")
	s := serveStore(t, fileURL(t), "--types", types, "--tokens", tokens, "--tls-cert", cert, "--tls-key", key)
	secretFile := write(t, dir, "token", secret+"\n")
	admin := s.cli(t).with("--ca", ours.file, "--token-file", secretFile)
	rotated := s.cli(t).with("--ca", ours.file, "--token", next)
	greeting := "{apiVersion: demo/v1, kind: Greeting, metadata: {name: a}}"
	planet := "{apiVersion: demo/v1, kind: Planet, metadata: {name: a}}"
	admin.ok("", "list", "demo/Greeting")
	require.Contains(t, rotated.run("", "list", "demo/Greeting").err, "unknown token")

	replaceFile(t, tokens, policy("    hashes: [{sha256: "+nextHash+"}]\n"))
	s.waitForLog(`"msg":"reloaded","what":"tokens"`)
	rotated.ok("", "list", "demo/Greeting")
	admin.ok("", "list", "demo/Greeting")
	replaceFile(t, tokens, policy("nobody: {}\n"))
	require.Contains(t, s.waitForLog(`"msg":"not reloaded, the previous contents stay in use","what":"tokens"`), "tokens.yaml: line 5: unknown key")
	rotated.ok("", "list", "demo/Greeting")

	require.Contains(t, admin.run(planet, "apply", "-f", "-").err, "not registered")
	saveTypes(t, types, "Greeting", "Planet")
	s.waitForLog(`"msg":"reloaded","what":"types"`)
	require.NotContains(t, admin.run(planet, "apply", "-f", "-").err, "not registered")
	require.NotContains(t, admin.run(greeting, "apply", "-f", "-").err, "not registered")
	replaceFile(t, filepath.Join(types, "types.yaml"), "types: [{type: other.v1.Thing, message: google.protobuf.SourceContext, scope: namespace}]\n")
	require.Contains(t, s.waitForLog(`"msg":"not reloaded, the previous contents stay in use","what":"types"`), "no such type is served")
	admin.ok("", "list", "demo/Planet")

	other, otherKey := theirs.sign("server")
	require.NoError(t, os.Rename(otherKey, key))
	require.NoError(t, os.Rename(other, cert))
	s.waitForLog(`"msg":"reloaded","what":"certificates"`)
	s.cli(t).with("--ca", theirs.file, "--token", next).ok("", "list", "demo/Greeting")
}

// A client certificate identifies a caller without a token, by gRPC and by HTTP.
func TestServeCertificateIdentity(t *testing.T) {
	t.Parallel()
	ours, clients := newAuthority(t), newAuthority(t)
	cert, key := ours.sign("server")
	secret, hash := token()
	tokens := write(t, t.TempDir(), "tokens.yaml", fmt.Sprintf(`
tokens:
  - {name: deployer, certificates: [cn:deployer], rules: [{types: ["*"], may: [read, list, write]}]}
  - {name: reader, sha256: %s, rules: [{types: ["*"], may: [read, list]}]}
`, hash))
	s := serveStore(t, fileURL(t), "--tls-cert", cert, "--tls-key", key, "--client-ca", clients.file, "--tokens", tokens, "--admin", "127.0.0.1:0")
	deployer, deployerKey := clients.sign("deployer")
	guest, guestKey := clients.sign("guest")
	c := s.cli(t).with("--ca", ours.file)
	d := c.with("--cert", deployer, "--key", deployerKey)
	d.ok(configMap("a", "1"), "apply", "-f", "-")
	require.Contains(t, s.waitForLog(`"caller":"deployer"`), "ResourceService")
	require.Contains(t, c.with("--cert", guest, "--key", guestKey).run("", "list", "*").err, "a token is required")
	require.Contains(t, d.with("--token", secret).run(configMap("a", "2"), "apply", "-f", "-").err, `"reader" may not write`, "a token takes precedence")

	pair := httpsClient(t, ours.file, deployer, deployerKey)
	answer, err := pair.Get("https://" + s.http + "/api/core/v1/ConfigMap/a")
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, 200, answer.StatusCode)
	answer, err = httpsClient(t, ours.file, guest, guestKey).Get("https://" + s.http + "/api/core/v1/ConfigMap/a")
	require.NoError(t, err)
	defer answer.Body.Close()
	require.Equal(t, 401, answer.StatusCode)
}
