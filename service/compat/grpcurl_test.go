package compat

import (
	"context"
	"net"
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

// freeAddress returns an unused loopback address.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// varyingText matches text that differs in each run.
var varyingText = regexp.MustCompile(`"(uid|generation|version|cursor)": "[^"]+"`)

// The output of grpcurl in docs/service.md is the actual output.
func TestGrpcurlSession(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	document, err := os.ReadFile("../../docs/service.md")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(document), "\n## gRPC\n")
	_, shown, _ = strings.Cut(shown, "\n```\n")
	shown, _, _ = strings.Cut(shown, "```\n")

	grpcurl, ashlar := build(ctx, t, ".", "github.com/fullstorydev/grpcurl/cmd/grpcurl"), build(ctx, t, "../..", "./cmd/ashlar")
	address := freeAddress(t)
	server := exec.CommandContext(ctx, ashlar, "serve", "--any-type", "--store", "mem://", "--listen", address, "--http", "")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		server.Process.Signal(os.Interrupt)
		if err := server.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	}()
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}

	var said strings.Builder
	commands := 0
	for line := range strings.Lines(shown) {
		command, is := strings.CutPrefix(line, "$ ")
		if !is {
			continue
		}
		commands++
		said.WriteString(line)
		sh := exec.CommandContext(ctx, "sh", "-c", strings.ReplaceAll(command, "127.0.0.1:8502", address))
		sh.Env = append(os.Environ(), "PATH="+filepath.Dir(grpcurl)+":"+os.Getenv("PATH"))
		out, _ := sh.CombinedOutput() // it fails if it prints an error
		said.Write(out)
	}
	got, want := varyingText.ReplaceAllString(said.String(), `"$1": "…"`), varyingText.ReplaceAllString(shown, `"$1": "…"`)
	if commands < 5 || got != want {
		t.Errorf("the session of %d commands was\n%s\nnot\n%s", commands, got, want)
	}
}
