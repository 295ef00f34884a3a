package main

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// TestFailedConnection checks that the errors about an unreachable database are readable.
func TestFailedConnection(t *testing.T) {
	t.Parallel()
	const secret = "hunter22"
	for what, store := range map[string]string{
		"refused":       "postgres://u:" + secret + "@127.0.0.1:1/d?sslmode=disable",
		"all refused":   "postgres://u:" + secret + "@/d?sslmode=disable&host=127.0.0.1,127.0.0.1&port=1,2",
		"with fallback": "postgres://u@127.0.0.1:1/d?password=" + url.QueryEscape(secret),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			got := newRunner(t, store).run("", "--timeout=1s", "list", "g/Kind")
			assert.NotEqual(t, cli.ExitOK, got.code)
			assert.NotContains(t, got.err, "\ufffd")
			assert.NotContains(t, got.err, secret)
			assert.NotContains(t, got.err, "  ")
			assert.LessOrEqual(t, strings.Count(got.err, "open the store"), 1, "%s", got.err)
		})
	}
}
