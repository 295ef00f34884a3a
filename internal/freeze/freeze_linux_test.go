package freeze_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/ashlar-dev/storage/internal/freeze"
)

const busy = "FROZEN_TEST_BUSY"

// TestMain is also the process that is stopped: more threads run in it than there are processors.
func TestMain(m *testing.M) {
	if os.Getenv(busy) == "" {
		os.Exit(m.Run())
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for range 16 {
		go func() {
			for {
				_, _ = null.WriteString("running")
			}
		}()
	}
	select {}
}

// No thread of a process runs when Stop has returned.
func TestStop(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), busy+"=1", "GOMAXPROCS=32")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it says that the process was killed
	}()
	for range 50 {
		if err := freeze.Stop(cmd.Process); err != nil {
			t.Fatal(err)
		}
		for thread, state := range threads(t, cmd.Process.Pid) {
			if state != 'T' {
				t.Errorf("thread %s has the state %c after Stop, expected T, stopped", thread, state)
			}
		}
		if err := freeze.Wake(cmd.Process); err != nil {
			t.Fatal(err)
		}
	}
}

// threads returns the states of a process's threads.
func threads(t *testing.T, pid int) map[string]byte {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("the threads of process %d: %v, %v", pid, files, err)
	}
	states := map[string]byte{}
	for _, file := range files {
		stat, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// The state follows the name of the program, which is in brackets and may have brackets in it.
		_, rest, found := bytes.Cut(stat[bytes.LastIndexByte(stat, ')'):], []byte(") "))
		if !found || len(rest) == 0 {
			t.Fatalf("%s: %s", file, stat)
		}
		states[file] = rest[0]
	}
	return states
}

// A process that has ended is not reported as frozen.
func TestStopOfEndedProcess(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), busy+"=1", "GOMAXPROCS=32")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	if err := freeze.Stop(cmd.Process); err == nil {
		t.Error("no error")
	}
	_ = cmd.Wait() // Stop may have noticed the end
}
