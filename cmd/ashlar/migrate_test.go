package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

func TestMigrateOnce(t *testing.T) {
	t.Parallel()
	from, to := memoryURL(), fileURL(t)
	c := newRunner(t, from)
	c.ok("", "apply", "-f", boutique)
	stores := []string{"--from", from, "--to", to}
	n := len(lines(c.ok("", "list", "*", "-A", "-o", "name")))

	dry := c.ok("", append([]string{"migrate", "--dry-run"}, stores...)...)
	require.Contains(t, dry, "would copy everything")
	require.Empty(t, c.ok("", "list", "*", "-A", "-o", "name", "--store", to), "a dry run writes nothing")

	r := c.run("", append([]string{"migrate", "verify"}, stores...)...)
	require.Equal(t, cli.ExitFailed, r.code)
	require.Len(t, lines(r.out), n)
	require.Contains(t, r.out, "missing   ")

	out := c.ok("", append([]string{"migrate"}, stores...)...)
	require.Contains(t, out, "verified: equal")
	require.Contains(t, c.ok("", append([]string{"migrate", "verify"}, stores...)...), "equal: ")

	r = c.run("", append([]string{"migrate"}, stores...)...)
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "the target is not empty; choose --merge, --overwrite or --mirror")

	c.ok("", "delete", "apps/Deployment", "basket", "-n", "boutique", "--store", to)
	r = c.run("", append([]string{"migrate", "verify", "--json"}, stores...)...)
	require.Equal(t, cli.ExitFailed, r.code)
	var found, summary map[string]any
	require.NoError(t, json.Unmarshal([]byte(lines(r.out)[0]), &found))
	require.NoError(t, json.Unmarshal([]byte(lines(r.out)[1]), &summary))
	require.Equal(t, "missing", found["difference"])
	require.Equal(t, "basket", found["name"])
	require.Equal(t, false, summary["equal"])

	for line := range strings.SplitSeq(strings.TrimSpace(c.ok("", append([]string{"migrate", "--merge", "--json"}, stores...)...)), "\n") {
		require.NoError(t, json.Unmarshal([]byte(line), &summary), line)
	}
	require.Equal(t, "ok", summary["result"])
	require.EqualValues(t, 1, summary["created"])
}

func TestMigrateLive(t *testing.T) {
	t.Parallel()
	from, to := fileURL(t), fileURL(t)
	c := newRunner(t, from)
	c.ok("", "apply", "-f", boutique)
	stores := []string{"--from", from, "--to", to}

	// The migration runs until the cutover.
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	in, operator := io.Pipe()
	seen, out := io.Pipe()
	var errs bytes.Buffer
	exitCode := make(chan int, 1)
	go func() {
		exitCode <- run(ctx, c.app(in, out, &errs), append([]string{"migrate", "--live", "--json"}, stores...))
		_ = out.Close()
		_ = in.Close()
	}()
	var last map[string]any
	sentCutover := false
	for dec := json.NewDecoder(seen); ; {
		var object map[string]any
		if err := dec.Decode(&object); err != nil {
			require.ErrorIs(t, err, io.EOF)
			break
		}
		last = object
		if object["phase"] == "follow" && !sentCutover {
			sentCutover = true
			_, err := io.WriteString(operator, "unknown\ncutover\n") // unknown input must not end the migration
			require.NoError(t, err)
		}
	}
	require.Equal(t, cli.ExitOK, <-exitCode, errs.String())
	require.Equal(t, "complete", last["phase"])
	require.True(t, sentCutover, "the migration ended without the phase follow")

	r := c.run(configMap("late", ""), "apply", "-f", "-")
	require.Equal(t, cli.ExitFailed, r.code)
	require.Contains(t, r.err, "the store has moved to "+to)
	require.Contains(t, c.ok("", "migrate", "status"), "it has moved to "+to)
	require.Contains(t, c.ok("", "migrate", "status", "--store", to), "phase complete")
	require.Contains(t, c.ok("", append([]string{"migrate", "--live", "--cutover-when-lag-below", "1s"}, stores...)...), "already complete")
	require.Equal(t, cli.ExitUsage, c.run("", append([]string{"migrate", "abort"}, stores...)...).code)

	// And back again.
	back := []string{"migrate", "--live", "--cutover-when-lag-below", "1m", "--mirror", "--from", to, "--to", from}
	require.Contains(t, c.run("", back...).err, "unfence")
	c.ok("", "migrate", "unfence")
	require.Contains(t, c.ok("", back...), "complete: ")
	c.ok(configMap("late", ""), "apply", "-f", "-")
	c.ok("", "apply", "-f", boutique)
}

// interruptingBuffer calls interrupt when a text is written, before the writer can continue.
type interruptingBuffer struct {
	bytes.Buffer
	text      string
	interrupt func()
}

func (b *interruptingBuffer) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(b.text)) {
		b.interrupt()
	}
	return b.Buffer.Write(p)
}

// stopMigration runs a live migration, interrupts it when it reports a phase, and returns its last message.
func stopMigration(t *testing.T, c *runner, phase string, args ...string) (note string) {
	t.Helper()
	ctx, interrupt := context.WithTimeout(context.Background(), waitTimeout)
	defer interrupt()
	out := &interruptingBuffer{text: `"phase":"` + phase + `"`, interrupt: interrupt}
	var errs bytes.Buffer
	code := run(ctx, c.app(strings.NewReader(""), out, &errs), append([]string{"migrate", "--live", "--json"}, args...))
	require.Contains(t, out.String(), out.text)
	for dec := json.NewDecoder(out); ; {
		var object map[string]any
		if dec.Decode(&object) != nil {
			break
		}
		if text, ok := object["note"].(string); ok {
			note = text
		}
	}
	require.Equal(t, cli.ExitFailed, code)
	require.Contains(t, errs.String(), "interrupted")
	return note
}

// commandAfter returns the arguments of the command line that a text recommends for a purpose.
func commandAfter(t *testing.T, text, purpose string) []string {
	t.Helper()
	_, after, found := strings.Cut(text, purpose+": ashlar ")
	require.True(t, found, text)
	words, _, _ := strings.Cut(after, ". ")
	return strings.Fields(words)
}

func TestMigrateInterrupted(t *testing.T) {
	t.Parallel()
	from, to := fileURL(t), fileURL(t)
	c := newRunner(t, from)
	c.ok("", "apply", "-f", boutique)
	text := stopMigration(t, c, "follow", "--from", from, "--to", to)
	require.Contains(t, text, "the same command continues from here")
	require.Contains(t, text, "the source is open for writing")
	status := c.ok("", "migrate", "status", "--store", to)
	require.Contains(t, status, "phase follow")
	require.Equal(t, commandAfter(t, text, "To abort it"), commandAfter(t, strings.TrimSpace(status), "to abort"))
	require.Contains(t, c.ok("", commandAfter(t, text, "To abort it")...), "aborted")
	require.Contains(t, c.ok("", "migrate", "status", "--store", to), "open")
}

// TestMigrateStoppedWhileClosed stops migrations during the cutover. Both commands in the message must work.
func TestMigrateStoppedWhileClosed(t *testing.T) {
	t.Parallel()
	for purpose, want := range map[string]string{"To continue": "complete: ", "To open the source again": "aborted: the source accepts writes"} {
		t.Run(purpose, func(t *testing.T) {
			t.Parallel()
			from, to := fileURL(t), fileURL(t)
			c := newRunner(t, from)
			c.ok("", "apply", "-f", boutique)
			text := stopMigration(t, c, "cutover", "--cutover-when-lag-below", "1h", "--from", from, "--to", to)
			require.Contains(t, text, "the source is closed for writing until then")
			require.Contains(t, c.ok("", commandAfter(t, text, purpose)...), want)
			written := c.run(configMap("late", ""), "apply", "-f", "-")
			if purpose == "To continue" {
				require.Contains(t, written.err, "the store has moved to "+to)
			} else {
				require.Equal(t, cli.ExitOK, written.code, written.err)
			}
		})
	}
}

func TestExportAndImport(t *testing.T) {
	t.Parallel()
	from, to := memoryURL(), fileURL(t)
	c := newRunner(t, from)
	c.ok("", "apply", "-f", boutique)
	file := filepath.Join(t.TempDir(), "store.ashlar")
	require.Contains(t, c.ok("", "export", file), "exported to "+file)
	require.Equal(t, 1, strings.Count(c.ok("", "import", file, "--store", to), "verified: equal"))
	require.Contains(t, c.ok("", "migrate", "verify", "--from", from, "--to", to), "equal: ")
	require.Contains(t, c.run("", "import", file, "--store", to).err, "not empty")
	require.Contains(t, c.ok("", "import", file, "--mirror", "--store", to), "created 0")

	piped := memoryURL()
	c.ok(c.ok("", "export", "-"), "import", "-", "--store", piped)
	require.Contains(t, c.ok("", "migrate", "verify", "--from", from, "--to", piped), "equal: ")

	whole, err := os.ReadFile(file)
	require.NoError(t, err)
	whole[len(whole)/2] ^= 1
	require.NoError(t, os.WriteFile(file, whole, 0o600))
	empty := memoryURL()
	r := c.run("", "import", file, "--store", empty)
	require.Equal(t, cli.ExitUsage, r.code)
	require.Contains(t, r.err, "damaged")
	require.Contains(t, c.run("", "list", "*", "-o", "name", "--store", empty).err, "the store does not exist")
	require.Equal(t, cli.ExitFailed, c.run("", "import", file+".none").code)
	require.Equal(t, cli.ExitFailed, c.run("", "export", filepath.Join(file, "none")).code)
	left, err := os.ReadDir(filepath.Dir(file))
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file remains")
}

func TestMigrateUsage(t *testing.T) {
	t.Parallel()
	createStore(t, "mem://cli-same")
	for name, args := range map[string][]string{
		"no stores":    {"migrate"},
		"one store":    {"migrate", "verify", "--from", "mem://"},
		"two policies": {"migrate", "--from", "mem://", "--to", "mem://", "--merge", "--mirror"},
		"lag alone":    {"migrate", "--from", "mem://", "--to", "mem://", "--cutover-when-lag-below", "1s"},
		"no writers":   {"migrate", "--from", "mem://", "--to", "mem://", "--parallel", "0"},
		"the same":     {"migrate", "--allow-empty", "--from", "mem://cli-same", "--to", "mem://cli-same"},
		"subcommand":   {"migrate", "verfy"},
	} {
		r := newRunner(t, memoryURL()).run("", args...)
		require.Equal(t, cli.ExitUsage, r.code, "%s: %s", name, r.err)
	}
}

func TestMigrateShowsNoPassword(t *testing.T) {
	t.Parallel()
	c := newRunner(t, memoryURL())
	r := c.run("", "migrate", "--timeout", "2s", "--from", memoryURL(), "--to", "postgres://user:pa55word@127.0.0.1:1/db?sslmode=disable")
	require.Equal(t, cli.ExitFailed, r.code)
	require.NotContains(t, r.out+r.err, "pa55word")
}
