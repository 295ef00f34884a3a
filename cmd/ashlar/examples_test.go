package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

// word matches a word of a shell command, with or without quotes.
var word = regexp.MustCompile(`'[^']*'|[^\s']+`)

// invocations returns the arguments of each ashlar command in a text.
func invocations(text string) [][]string {
	var out [][]string
	for _, line := range strings.Split(text, "\n") {
		for _, part := range regexp.MustCompile(`\||&&| &$|#`).Split(line, -1) {
			words := word.FindAllString(part, -1)
			if len(words) == 0 || words[0] != "ashlar" && words[0] != "bin/ashlar" {
				continue
			}
			args := []string{}
			for _, w := range words[1:] {
				args = append(args, strings.Trim(w, "'"))
			}
			out = append(out, args)
		}
	}
	return out
}

// Every example in help texts and documents is a valid command line.
func TestExamplesParse(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	var collect func(cmd *cobra.Command)
	collect = func(cmd *cobra.Command) {
		text.WriteString(cmd.Example + "\n")
		for _, sub := range cmd.Commands() {
			collect(sub)
		}
	}
	collect(newRoot(newRunner(t, "").app(nil, nil, nil)))
	for _, file := range []string{"../../docs/cli.md", "../../docs/service.md", "../../README.md", "../../docs/start.md", "../../docs/moving-a-store.md", "../../docs/etcd.md", "../../docs/kubernetes.md", "../../examples/boutique/README.md"} {
		doc, err := os.ReadFile(file)
		require.NoError(t, err)
		text.Write(doc)
	}
	all := invocations(text.String())
	require.Greater(t, len(all), 20)
	for _, args := range all {
		root := newRoot(newRunner(t, "").app(nil, nil, nil))
		root.InitDefaultCompletionCmd()
		cmd, rest, err := root.Find(args)
		require.NoError(t, err, "%v", args)
		require.NotSame(t, root, cmd, "%v", args)
		require.NoError(t, cmd.ParseFlags(rest), "%v", args)
		require.NoError(t, cmd.ValidateArgs(cmd.Flags().Args()), "%v", args)
	}
}

// The table at the start of docs/cli.md lists every command, except hidden ones.
func TestCommandsAreListed(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	table, _, _ := strings.Cut(string(doc), "\n## ")
	for _, cmd := range newRoot(newRunner(t, "").app(nil, nil, nil)).Commands() {
		if cmd.Hidden {
			continue
		}
		require.Regexp(t, "`"+cmd.Name()+"[` ]", table)
	}
}
