package web_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/service/registry"
)

// varyingText matches text that differs in each run.
var varyingText = regexp.MustCompile(`"(uid|generation|version|cursor)":( ?)"[^"]+"`)

// The output of curl in docs/service.md is the actual output.
func TestCurlSession(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	_, err := exec.LookPath("curl")
	require.NoError(t, err, "install curl: the documentation's session is run with it")
	document, err := os.ReadFile("../../docs/service.md")
	require.NoError(t, err)
	_, shown, _ := strings.Cut(string(document), "\n## HTTP and JSON\n")
	_, shown, _ = strings.Cut(shown, "\n```\n")
	shown, _, _ = strings.Cut(shown, "```\n")

	s := memorySite(t, registry.NewOpen(registry.Type{}), nil)
	address := strings.TrimSuffix(strings.TrimPrefix(s.url, "http://"), "/api")
	var said strings.Builder
	commands := 0
	for line := range strings.Lines(shown) {
		command, is := strings.CutPrefix(line, "$ ")
		if !is {
			continue
		}
		commands++
		said.WriteString(line)
		out, err := exec.CommandContext(ctx, "sh", "-c", strings.ReplaceAll(command, "127.0.0.1:8500", address)).CombinedOutput()
		require.NoError(t, err, "%s%s", line, out)
		said.Write(out)
	}
	require.Greater(t, commands, 5)
	require.Equal(t, varyingText.ReplaceAllString(shown, `"$1":$2"…"`), varyingText.ReplaceAllString(said.String(), `"$1":$2"…"`))
}
