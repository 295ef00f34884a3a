package monitoring

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// server is a process of ashlar serve on SQLite.
type server struct {
	t           *testing.T
	http, admin string
	stop        func() // ends the process; later calls do nothing
}

// token is the token of the caller "deployer".
const token = "secret"

// startServer starts the program in the variable ASHLAR, with further variables.
func startServer(t *testing.T, variables ...string) *server {
	t.Helper()
	program := os.Getenv("ASHLAR")
	if program == "" {
		t.Fatal("the variable ASHLAR must name the program: use make monitoring")
	}
	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens.yaml")
	text := fmt.Sprintf("tokens:\n  - {name: deployer, sha256: %x, rules: [{types: [demo/*], may: [read, list, write]}]}\n", sha256.Sum256([]byte(token)))
	if err := os.WriteFile(tokens, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, "serve", "--any-type", "--store", "sqlite:"+filepath.Join(dir, "store.db"), "--tokens", tokens,
		"--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-format", "json")
	cmd.Env = append(os.Environ(), variables...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	log, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var entry struct{ Msg, HTTP, Admin string }
		if err := json.Unmarshal(lines.Bytes(), &entry); err == nil && entry.Msg == "listening" {
			go func() { _, _ = io.Copy(io.Discard, log) }() // it ends with the process
			stop := sync.OnceFunc(func() {
				_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
				_ = cmd.Wait()
			})
			t.Cleanup(stop)
			return &server{t, "http://" + entry.HTTP, "http://" + entry.Admin, stop}
		}
	}
	t.Fatalf("the server has ended: %v", cmd.Wait())
	return nil
}

// send sends a request and returns its answer, which the caller closes.
func (s *server) send(ctx context.Context, method, url, token, body string) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// expect sends a request whose answer must have a status code.
func (s *server) expect(code int, method, path, token, body string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	got := s.send(ctx, method, s.http+path, token, body)
	text, err := io.ReadAll(got.Body)
	if err = errors.Join(err, got.Body.Close()); err != nil || got.StatusCode != code {
		s.t.Fatalf("%s %s: %d, %v, want %d: %s", method, path, got.StatusCode, err, code, text)
	}
}
