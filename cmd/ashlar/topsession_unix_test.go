//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/creack/pty"
	"github.com/stretchr/testify/require"
)

var record = flag.String("record-top", "", "write the session of ashlar top on a terminal to this file (asciicast, version 2)")

// terminal runs the command on a terminal and records its output.
type terminal struct {
	t     *testing.T
	cmd   *exec.Cmd
	f     *os.File
	began time.Time
	ended chan error

	mu    sync.Mutex
	text  bytes.Buffer // the output without cursor movements
	cast  bytes.Buffer // in asciicast format
	drawn chan struct{}
}

const terminalColumns, terminalRows = 96, 20

func onTerminal(t *testing.T, dir string, env []string, args ...string) *terminal {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	x := &terminal{t: t, cmd: exec.Command(self, args...), began: time.Now(), ended: make(chan error, 1), drawn: make(chan struct{}, 1)}
	x.cmd.Dir = dir
	x.cmd.Env = slices.Concat(env, commandEnv, []string{"TERM=xterm-256color"})
	x.f, err = pty.StartWithSize(x.cmd, &pty.Winsize{Cols: terminalColumns, Rows: terminalRows})
	require.NoError(t, err)
	t.Cleanup(func() { x.f.Close() })
	fmt.Fprintf(&x.cast, `{"version":2,"width":%d,"height":%d,"title":"ashlar top"}`+"\n", terminalColumns, terminalRows)
	go x.read()
	return x
}

func (x *terminal) read() {
	part := make([]byte, 64<<10)
	for {
		n, err := x.f.Read(part)
		x.mu.Lock()
		x.text.WriteString(ansi.Strip(string(part[:n])))
		if event, err := json.Marshal([]any{time.Since(x.began).Seconds(), "o", string(part[:n])}); err == nil && n > 0 {
			x.cast.Write(append(event, '\n'))
		}
		x.mu.Unlock()
		select {
		case x.drawn <- struct{}{}:
		default:
		}
		if err != nil {
			// Linux returns EIO when the last process has closed the terminal.
			if errors.Is(err, syscall.EIO) || errors.Is(err, io.EOF) {
				err = nil
			}
			x.ended <- errors.Join(err, x.cmd.Wait())
			return
		}
	}
}

// waitFor waits until a text is drawn.
func (x *terminal) waitFor(text string) {
	x.t.Helper()
	late := time.After(waitTimeout)
	for {
		x.mu.Lock()
		all := x.text.String()
		if at := strings.Index(all, text); at >= 0 {
			x.text.Next(at + len(text))
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
		select {
		case <-x.drawn:
		case <-late:
			x.t.Fatalf("%q is not drawn, but: %s", text, all)
		}
	}
}

func (x *terminal) press(keys string) {
	x.t.Helper()
	if *record != "" {
		<-time.After(1500 * time.Millisecond) // for viewers of the recording
	}
	_, err := x.f.WriteString(keys)
	require.NoError(x.t, err)
}

func TestTopOnATerminal(t *testing.T) {
	t.Parallel()
	dir, stores := t.TempDir(), t.TempDir()
	c := newRunner(t, "sqlite:"+filepath.Join(stores, "store.db"))
	for i := range 5 {
		c.ok("", "apply", "-f", write(t, dir, "a.yaml", configMap(fmt.Sprint("settings-", i), "1")))
	}
	x := onTerminal(t, stores, []string{"ASHLAR_STORE=sqlite:store.db"}, "top", "--interval", "200ms")
	x.waitFor("ashlar top")
	x.waitFor("core/ConfigMap")
	c.ok("", "apply", "-f", write(t, dir, "a.yaml", configMap("late", "1")))
	x.waitFor("create  core/ConfigMap")
	c.ok("", "delete", "core/ConfigMap", "late")
	x.waitFor("delete")
	x.press("?")
	x.waitFor("pause, and resume")
	x.press("?")
	x.waitFor("NEWEST CHANGES")
	x.press("/nothing\r")
	x.waitFor("nothing")
	x.press("\x1b")
	x.waitFor("core/ConfigMap")
	x.press("p")
	x.waitFor("PAUSED")
	x.press("q")
	require.NoError(t, <-x.ended)
	if *record != "" {
		require.NoError(t, os.WriteFile(*record, x.cast.Bytes(), 0o644))
	}
}

// The recorded session in the documentation matches the current output.
func TestRecordedTopSession(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/assets/top.cast")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	var header struct{ Version, Width, Height int }
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &header))
	require.Equal(t, []int{2, terminalColumns, terminalRows}, []int{header.Version, header.Width, header.Height})
	var all strings.Builder
	last := 0.0
	for _, line := range lines[1:] {
		var at float64
		var kind, text string
		require.NoError(t, json.Unmarshal([]byte(line), &[]any{&at, &kind, &text}))
		require.GreaterOrEqual(t, at, last)
		last = at
		all.WriteString(text)
	}
	drawn := ansi.Strip(all.String())
	for _, text := range []string{"RESOURCES", "WRITES/S", "NEWEST CHANGES", "behind by at most", "q quit   p pause   s sort   r reverse   / filter   ? help", "PAUSED"} {
		require.Contains(t, drawn, text, "make record-top renews docs/assets/top.cast")
	}
}
