//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The commands of the section on the command line in docs/start.md work in this order, and print the output that the page shows.
func TestStartAsDocumented(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/start.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(document), "\n## The command line\n")
	section, _, _ = strings.Cut(section, "\n## ")
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	examples, err := filepath.Abs("../../examples")
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	require.NoError(t, os.Symlink(self, filepath.Join(dir, "bin", "ashlar")))
	require.NoError(t, os.Symlink(examples, filepath.Join(dir, "examples")))

	script, shown, commands := "set -euo pipefail\n", "", 0
	for _, block := range regexp.MustCompile("(?ms)^```\n(.*?)^```$").FindAllStringSubmatch(section, -1) {
		session := strings.HasPrefix(block[1], "$ ")
		for _, line := range lines(block[1]) {
			command, prompt := strings.CutPrefix(line, "$ ")
			switch {
			case session && !prompt:
				shown += line + "\n"
				continue
			case strings.HasPrefix(command, "bin/ashlar watch"):
				command += " --limit 41 >&2"
			case !session:
				command += " >&2"
			}
			commands++
			script += command + "\n"
		}
	}
	require.Greater(t, commands, 7)
	shell := exec.Command("bash", "-c", script)
	shell.Dir, shell.Env = dir, append(os.Environ(), commandEnv...)
	var complaints strings.Builder
	shell.Stderr = &complaints
	out, err := shell.Output()
	require.NoError(t, err, complaints.String())
	created := regexp.MustCompile(`was \d+`) // apply writes concurrently, so the revision of a creation differs
	require.Equal(t, created.ReplaceAllString(shown, "was N"), created.ReplaceAllString(string(out), "was N"))
}
