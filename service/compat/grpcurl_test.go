package compat

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// build builds a program and returns its path. The tests have compiled most packages with the race detector already.
func build(ctx context.Context, t *testing.T, dir, pkg string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.CommandContext(ctx, "go", "build", "-race", "-o", path, pkg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	return path
}

// varyingText matches text that differs in each run.
var varyingText = regexp.MustCompile(`"(uid|generation|version|cursor)": "[^"]+"`)

// The output of grpcurl in docs/service.md is the actual output.
func TestGrpcurlSession(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	document, err := os.ReadFile("../../docs/service.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(document), "\n## gRPC\n")
	_, shown, _ = strings.Cut(shown, "\n```\n")
	shown, _, _ = strings.Cut(shown, "```\n")

	grpcurl, ashlar := build(ctx, t, ".", "github.com/fullstorydev/grpcurl/cmd/grpcurl"), build(ctx, t, "../..", "./cmd/ashlar")
	server := exec.CommandContext(ctx, ashlar,
		"serve", "--any-type", "--store", "mem://", "--listen", "127.0.0.1:0", "--http", "", "--log-format", "json")
	log, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		server.Process.Signal(os.Interrupt)
		if err := server.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	}()
	lines := bufio.NewScanner(log)
	address := ""
	for address == "" {
		if !lines.Scan() {
			t.Fatalf("the server has reported no address: %v", lines.Err())
		}
		var line struct{ Grpc string }
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		address = line.Grpc
	}
	go func() { _, _ = io.Copy(io.Discard, log) }() // until the server ends

	run := func(command string) string {
		sh := exec.CommandContext(ctx, "sh", "-c", strings.ReplaceAll(command, "127.0.0.1:8502", address))
		sh.Env = append(os.Environ(), "PATH="+filepath.Dir(grpcurl)+":"+os.Getenv("PATH"))
		out, _ := sh.CombinedOutput() // it fails if it prints an error
		return varyingText.ReplaceAllString(string(out), `"$1": "…"`)
	}
	commands := strings.Split("\n"+shown, "\n$ ")[1:]
	if len(commands) < 5 {
		t.Errorf("the session has %d commands, expected at least 5", len(commands))
	}
	for _, text := range commands {
		command, want, _ := strings.Cut(strings.TrimSuffix(text, "\n")+"\n", "\n")
		want = varyingText.ReplaceAllString(want, `"$1": "…"`)
		got := run(command)
		for _, seconds := range []string{"12", "48"} { // on a slow machine, 3 seconds may pass before the output
			if longer := strings.Replace(command, "-max-time 3 ", "-max-time "+seconds+" ", 1); got != want && longer != command {
				got = run(longer)
			}
		}
		if got != want {
			t.Errorf("the output of %s was\n%s\nnot\n%s", command, got, want)
		}
	}
}
