package relay_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
)

// The variables of a process that the tests start: the URL of its store, and the number of handles that watch.
const processURL, processHandles = "ASHLAR_TEST_RELAY_URL", "ASHLAR_TEST_RELAY_HANDLES"

func TestMain(m *testing.M) {
	if url := os.Getenv(processURL); url != "" {
		handles, _ := strconv.Atoi(os.Getenv(processHandles))
		if err := serveProcess(url, handles); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		return
	}
	if !faults.ServeProcess() {
		os.Exit(m.Run())
	}
}

// serveProcess opens a store until standard input ends. Each handle checks all changes, and the process prints a line when all have read
// their snapshots, and one when all have seen the last change of each name.
func serveProcess(url string, handles int) error {
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel(io.EOF)
	}()
	var began, ended sync.WaitGroup
	for range max(handles, 1) {
		b, err := storage.Open(ctx, url)
		if err != nil {
			return err
		}
		defer func() { _ = b.Close() }()
		if handles == 0 {
			break
		}
		w, err := b.WatchList(ctx, boxType, tenancy, "")
		if err != nil {
			return err
		}
		began.Add(1)
		ended.Add(1)
		go func() {
			defer ended.Done()
			if err := check(ctx, w, began.Done); err != nil {
				cancel(err)
			}
		}()
	}
	began.Wait()
	fmt.Println("began")
	if handles > 0 {
		ended.Wait()
		if err := context.Cause(ctx); err != nil && err != io.EOF {
			return err
		}
		fmt.Println("complete")
	}
	<-ctx.Done()
	return nil
}

// process is a process that a test has started.
type process struct {
	command *exec.Cmd
	input   io.WriteCloser
	lines   *bufio.Scanner
}

// startProcess starts a process. The end of the test kills it.
func startProcess(t testing.TB, name, url string, handles int) *process {
	t.Helper()
	return startSelf(t, []string{"-test.run=^$"}, processURL+"="+url, fmt.Sprint(processHandles, "=", handles), "AWS_ACCESS_KEY_ID="+name, "AWS_SECRET_ACCESS_KEY=fake")
}

// startSelf starts the program of the test.
func startSelf(t testing.TB, arguments []string, env ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(self, arguments...)
	c.Env = append(os.Environ(), env...)
	c.Stderr = os.Stderr
	p := &process{command: c}
	if p.input, err = c.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	output, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(output)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

// fakeProcess is the variable of a process that serves a fake.
const fakeProcess = "ASHLAR_TEST_RELAY_FAKE"

// startFake starts a fake in a process of its own, whose goroutines are none of the test's, and returns the URL of its store.
func startFake(t testing.TB) string {
	t.Helper()
	p := startSelf(t, []string{"-test.run=^TestServeFake$"}, fakeProcess+"=1")
	if !p.lines.Scan() {
		t.Fatal("the fake has no URL")
	}
	return p.lines.Text()
}

// TestServeFake is the process of startFake, and otherwise nothing.
func TestServeFake(t *testing.T) {
	if os.Getenv(fakeProcess) == "" {
		return
	}
	fmt.Println(dynamofake.New(t).URL())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func (p *process) kill() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait() // returns an error, because the process was killed
}

// await reads the next line.
func (p *process) await(t testing.TB, want string) {
	t.Helper()
	if !p.lines.Scan() || p.lines.Text() != want {
		t.Fatalf("process %d printed %q, expected %q", p.command.Process.Pid, p.lines.Text(), want)
	}
}
