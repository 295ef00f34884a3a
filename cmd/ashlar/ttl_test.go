package main

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// Through a server, apply stores and renews a time to live, and the server deletes the resource.
func TestServedTTL(t *testing.T) {
	t.Parallel()
	s := serveStore(t, memoryURL(), "--admin", "127.0.0.1:0")
	c := s.cli(t)
	const name = "core/ConfigMap default/a "
	require.Equal(t, name+"created\n", c.ok(configMap("a", "x"), "apply", "-f", "-", "--ttl", "1h"))
	require.Equal(t, name+"renewed\n", c.ok(configMap("a", "x"), "apply", "-f", "-", "--ttl", "1h"))
	require.Contains(t, c.ok("", "get", "core/ConfigMap", "a", "-o", "yaml"), `ttl: "3600s"`+"\n")
	require.Equal(t, name+"updated\n", c.ok(configMap("a", "x"), "apply", "-f", "-"))
	require.NotContains(t, c.ok("", "get", "core/ConfigMap", "a", "-o", "yaml"), "ttl")
	refused := c.run(configMap("a", "x"), "apply", "-f", "-", "--ttl", "100000h")
	require.Equal(t, cli.ExitFailed, refused.code)
	require.Contains(t, refused.err, "ttl is invalid: expected more than 0 and at most 87600h0m0s, got 100000h0m0s")
	require.Equal(t, cli.ExitUsage, c.run("", "apply", "-f", "-", "--ttl", "-1s").code)

	w := c.watch("*")
	for w.next() != "synced" { // a watch that begins after the deletions does not return them
	}
	c.ok(configMap("a", "x"), "apply", "-f", "-", "--ttl", "100ms")
	code, _ := s.send("PUT", "/api/core/v1/ConfigMap/b", "", `{"ttl":"0.1s","data":{"@type":"type.googleapis.com/google.protobuf.Struct","value":{}}}`)
	require.Equal(t, 200, code)
	for deleted, stones := 0, 0; deleted < 2 || stones < 2; {
		switch line := w.next(); {
		case strings.HasPrefix(line, "delete core/ConfigMap"):
			deleted++
		case strings.HasPrefix(line, "upsert internal/Tombstone"):
			stones++
		}
	}
	w.stop()
	w.end()
	fixture.Eventually(t, "the server reports two deletions", func() bool { return series(s.scrape()["ashlar_server_expiry_deleted_total"])[""] == 2 })
}

// ashlar expire deletes the resources of a store until it is interrupted. Export and import keep times to live.
func TestExpireCommand(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c, other := newRunner(t, fileURL(t)), newRunner(t, fileURL(t))
	file := filepath.Join(dir, "export.jsonl")
	c.ok(configMap("a", "x"), "apply", "-f", "-", "--ttl", "100ms")
	c.ok("", "export", file)
	other.ok("", "import", file)
	require.Contains(t, other.ok("", "get", "core/ConfigMap", "a", "-o", "json"), `"ttl": "0.100s"`)

	ctx, stop := context.WithTimeout(t.Context(), waitTimeout)
	defer stop()
	reader, log := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		defer log.Close()
		ended <- run(ctx, c.app(strings.NewReader(""), io.Discard, log), []string{"expire", "--report", "10ms"})
	}()
	reports := newScanner(reader)
	for reports.Scan() && !strings.Contains(reports.Text(), "pending=0 deleted=1 failures=0") {
	}
	stop()
	for last := ""; reports.Scan(); last = reports.Text() {
		require.NotContains(t, last, "msg=stopped", "a line after the last report")
	}
	require.Equal(t, cli.ExitOK, <-ended)
	require.Equal(t, cli.ExitNotFound, c.run("", "get", "core/ConfigMap", "a").code)
	require.Equal(t, cli.ExitUsage, c.run("", "expire", "--report", "0s").code)
	other.ok("", "get", "core/ConfigMap", "a")
}
