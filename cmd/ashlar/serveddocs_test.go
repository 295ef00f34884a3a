package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// The commands print the session through a server as shown in the document.
func TestServerSessionAsDocumented(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/cli.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(document), "\n## Through a server\n")
	_, shown, _ := strings.Cut(section, "\n```\n")
	shown, _, _ = strings.Cut(shown, "```\n")

	const settings = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}}\n---\n"
	const theme = "{apiVersion: v1, kind: ConfigMap, metadata: {name: theme, namespace: shop}}\n"
	replaced := strings.NewReplacer("shop.yaml", write(t, t.TempDir(), "shop.yaml", settings+theme))
	s := serveStore(t, fileURL(t))
	c := &runner{t: t, env: map[string]string{}}
	var said strings.Builder
	commands := 0
	for _, line := range lines(shown) {
		command, is := strings.CutPrefix(line, "$ ")
		if !is {
			continue
		}
		commands++
		fmt.Fprintln(&said, line)
		args := invocations(command)[0]
		for i := range args {
			if args[i] == "127.0.0.1:8502" {
				args[i] = s.grpc
			}
			args[i] = replaced.Replace(args[i])
		}
		r := c.run("", args...)
		said.WriteString(r.out + r.err)
	}
	require.Greater(t, commands, 3)
	require.Equal(t, shown, said.String())
}

// The document lists every flag of the server, with its default.
func TestServeFlagsAreDocumented(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../docs/service.md")
	require.NoError(t, err)
	cmd, _, err := newRoot(newRunner(t, "").app(nil, nil, nil)).Find([]string{"serve"})
	require.NoError(t, err)
	flags := 0
	cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		flags++
		require.Contains(t, string(document), "`--"+f.Name+"`")
		if f.DefValue != "" && f.DefValue != "false" {
			require.Contains(t, string(document), "`"+f.DefValue+"`", f.Name)
		}
	})
	require.Greater(t, flags, 10)
}
