package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// token returns a token and its hash.
func token() (plain, hash string) {
	plain = rand.Text()
	sum := sha256.Sum256([]byte(plain))
	return plain, hex.EncodeToString(sum[:])
}

func TestServeTokens(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	admin, adminHash := token()
	shop, shopHash := token()
	policy := fmt.Sprintf(`
tokens:
  - name: admin
    sha256: %s
    rules:
      - {types: ["*"], may: [read, list, write]}
  - name: shop
    sha256: %s
    rules:
      - {types: [core/*], partition: default, namespace: shop-*, may: [read, list]}
      - {types: [core/ConfigMap], partition: default, namespace: shop-a, may: [write]}
`, adminHash, shopHash)
	file := write(t, dir, "tokens.yaml", policy)
	s := serveStore(t, fileURL(t), "--tokens", file)
	all, c := s.cli(t).with("--token", admin), &runner{t: t, env: map[string]string{"ASHLAR_TOKEN": shop}, flags: []string{"--server", s.grpc}}
	for _, namespace := range []string{"shop-a", "shop-b", "bank"} {
		all.ok(configMap("a", "1"), "apply", "-f", "-", "-n", namespace)
	}
	require.Equal(t, "core/ConfigMap/a\n", c.ok("", "list", "core/*", "-n", "shop-b", "-o", "name"))
	require.Equal(t, "core/ConfigMap/a\n", c.ok("", "get", "core/ConfigMap", "a", "-n", "shop-b", "-o", "name"))
	require.Equal(t, "core/ConfigMap shop-a/a updated\n", c.ok(configMap("a", "2"), "apply", "-f", "-", "-n", "shop-a"))
	for name, tc := range map[string]struct {
		in   string
		args []string
		want string
	}{
		"write elsewhere":    {configMap("a", "2"), []string{"apply", "-f", "-", "-n", "shop-b"}, `"shop" may not write core/ConfigMap in partition "default", namespace "shop-b"`},
		"delete elsewhere":   {"", []string{"delete", "core/ConfigMap", "a", "-n", "shop-b"}, `"shop" may not write`},
		"read elsewhere":     {"", []string{"get", "core/ConfigMap", "a", "-n", "bank"}, `"shop" may not read`},
		"list everywhere":    {"", []string{"list", "core/*", "-A", "-p", "*"}, `"shop" may not list core/* in partition "*", namespace "*"`},
		"list all types":     {"", []string{"list", "*", "-n", "shop-a"}, `"shop" may not list */*`},
		"watch elsewhere":    {"", []string{"watch", "core/*", "-n", "bank"}, `"shop" may not list`},
		"what is not there":  {"", []string{"get", "core/ConfigMap", "none", "-n", "bank"}, `"shop" may not read`},
		"another type":       {"", []string{"get", "apps/Deployment", "a", "-n", "shop-a"}, `"shop" may not read`},
		"what exists partly": {"", []string{"owned", "core/ConfigMap", "a", "-n", "bank"}, `"shop" may not read`},
	} {
		r := c.run(tc.in, tc.args...)
		require.Equal(t, cli.ExitFailed, r.code, name)
		require.Contains(t, r.err, tc.want, name)
	}
	require.Contains(t, s.cli(t).run("", "list", "*").err, "a token is required")
	require.Contains(t, s.cli(t).with("--token", admin+"x").run("", "list", "*").err, "unknown token")

	// An error in the file changes nothing, and the log names the line. The corrected file takes effect at once.
	replaceFile(t, file, "nobody: {}\n")
	s.signal(syscall.SIGHUP)
	require.Contains(t, s.waitForLog("not reloaded"), `tokens.yaml: line 1: unknown key \"nobody\"`)
	all.ok("", "list", "*")
	replaceFile(t, file, "anonymous: {rules: [{types: [core/*], may: [list]}]}\n")
	s.signal(syscall.SIGHUP)
	s.waitForLog(`"msg":"reloaded"`)
	require.Contains(t, all.run("", "list", "*").err, "unknown token")
	require.Empty(t, s.cli(t).ok("", "list", "core/*"), "list permission without read permission returns nothing")

	code, text := s.get("/metrics")
	require.Equal(t, 200, code)
	s.signal(syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, s.end())
	require.Contains(t, s.logText(), `"caller":"shop"`)
	for _, secret := range []string{admin, shop} {
		require.NotContains(t, s.logText(), secret)
		require.NotContains(t, text, secret)
	}
}
