package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// auditLines returns the audit log, decoded.
func auditLines(t *testing.T, file string) (entries []map[string]any) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, line := range lines(string(text)) {
		entry := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(line), &entry), line)
		entries = append(entries, entry)
	}
	return entries
}

// The audit log has a line for each change and each refused change, by gRPC and by HTTP, as detailed as the policy of the type says. History
// shows the author of each version.
func TestServeAudit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := dir + "/audit.jsonl"
	admin, adminHash := token()
	reader, readerHash := token()
	tokens := write(t, dir, "tokens.yaml", fmt.Sprintf(`
tokens:
  - {name: alice, sha256: %s, rules: [{types: ["*"], may: [read, list, write]}]}
  - {name: bob, sha256: %s, rules: [{types: ["*"], may: [read, list]}]}
`, adminHash, readerHash))
	s := serveStore(t, fileURL(t), "--tokens", tokens, "--audit", file, "--record-author",
		"--audit-policy", "core/Secret=none", "--audit-policy", "demo/*=payload")
	alice, bob := s.cli(t).with("--token", admin), s.cli(t).with("--token", reader)

	alice.ok(configMap("a", "sesame"), "apply", "-f", "-")
	alice.ok(configMap("a", "sesame-2"), "apply", "-f", "-")
	require.Contains(t, bob.run(configMap("a", "3"), "apply", "-f", "-").err, "may not write")
	alice.ok(strings.ReplaceAll(configMap("hidden", "1"), "ConfigMap", "Secret"), "apply", "-f", "-")
	code, _ := s.send("PUT", "/api/demo/v1/Note/n", admin, `{"author": "mallory", "data": {"@type": "type.googleapis.com/google.protobuf.StringValue", "value": "hello"}}`)
	require.Equal(t, 200, code)
	alice.ok("", "delete", "core/ConfigMap", "a")

	entries := auditLines(t, file)
	var summary []string
	for _, e := range entries {
		summary = append(summary, fmt.Sprint(e["method"], " ", e["caller"], " ", e["type"], " ", e["namespace"], "/", e["name"], " ", e["code"]))
		require.Regexp(t, `^127\.0\.0\.1:\d+$`, e["address"])
	}
	require.Equal(t, []string{
		"Write alice core.v1.ConfigMap default/a OK", "Write alice core.v1.ConfigMap default/a OK",
		"Write bob core.v1.ConfigMap default/a PermissionDenied", "Write alice demo.v1.Note default/n OK",
		"Delete alice core.v1.ConfigMap default/a OK",
	}, summary)
	created, updated, refused, note, deleted := entries[0], entries[1], entries[2], entries[3], entries[4]
	require.Nil(t, created["before"])
	require.Equal(t, created["after"], updated["before"])
	require.NotEqual(t, updated["after"], updated["before"])
	require.Equal(t, updated["after"], deleted["before"])
	require.Equal(t, []any{nil, true, created["uid"]}, []any{deleted["after"], deleted["deleted"], deleted["uid"]})
	require.Nil(t, refused["after"])
	require.Contains(t, refused["error"], `"bob" may not write`)
	require.Nil(t, updated["resource"], "the level is metadata")
	require.Equal(t, "hello", note["resource"].(map[string]any)["data"].(map[string]any)["value"])
	require.Equal(t, "alice", note["resource"].(map[string]any)["author"], "the author is not what the client says")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	for _, secret := range []string{admin, reader, "sesame", "hidden"} {
		require.NotContains(t, string(text), secret)
	}

	shown := alice.ok("", "history", "core/ConfigMap", "a")
	require.Regexp(t, `created  \S+  by alice\n`, shown)
	require.Regexp(t, `changed  \S+  by alice\n`, shown)
	require.NotContains(t, shown, "author", "an author is no field of the content")

	// After a rotation of the log, SIGHUP opens a new file.
	require.NoError(t, os.Rename(file, file+".1"))
	s.signal(syscall.SIGHUP)
	s.waitForLog(`"what":"audit log"`)
	alice.ok(configMap("b", "1"), "apply", "-f", "-")
	require.Len(t, auditLines(t, file), 1)
	require.Len(t, auditLines(t, file+".1"), 5)
	s.signal(syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, s.end())
}

func TestServeAuditRefusals(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"--audit-policy needs --audit":                               {"--audit-policy", "*=none"},
		"expected TYPE=none, TYPE=metadata or TYPE=payload":          {"--audit", "-", "--audit-policy", "*=all"},
		`a type must be group/Kind, group/* or *, found "ConfigMap"`: {"--audit", "-", "--audit-policy", "ConfigMap=none"},
		"--record-author needs --tokens":                             {"--record-author"},
	} {
		r := newRunner(t, memoryURL()).run("", append([]string{"serve", "--any-type"}, args...)...)
		require.Equal(t, cli.ExitUsage, r.code, r.err)
		require.Contains(t, r.err, want)
	}
}
