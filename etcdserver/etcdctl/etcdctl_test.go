//go:build integration

package etcdctl

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ashlar-dev/storage/internal/test/env"
)

func TestMain(m *testing.M) { env.Main(m) }

// built builds etcdctl once and returns its path.
var built = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*timeout)
	defer cancel()
	path, err := exec.CommandContext(ctx, "go", "tool", "-n", "etcdctl").Output()
	return strings.TrimSpace(string(path)), err
})

// etcdctl returns the path of etcdctl.
func etcdctl(t *testing.T) string {
	t.Helper()
	program, err := built()
	if err != nil {
		t.Fatalf("build etcdctl: %v", err)
	}
	return program
}

// ashlar builds this repository's command line and returns its path.
func ashlar(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ashlar")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../..", "-o", program, "./cmd/ashlar").CombinedOutput(); err != nil {
		t.Fatalf("build ashlar: %v: %s", err, out)
	}
	return program
}

// serve starts `ashlar serve etcd` on a store and returns its address. At the end of the test it stops the program, which must exit without
// an error.
func serve(t *testing.T, program, store string) string {
	t.Helper()
	cmd := exec.Command(program, "serve", "etcd", "--store", store, "--listen", "127.0.0.1:0", "--log-format", "json", "--drain", "1s")
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(log)
	var where struct{ Msg, Grpc string }
	for where.Grpc == "" && lines.Scan() {
		if err := json.Unmarshal(lines.Bytes(), &where); err != nil {
			t.Errorf("%s: %v", lines.Text(), err)
		}
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, log) // until the program ends
	}()
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("ashlar serve etcd: %v", err)
		}
	})
	if where.Grpc == "" {
		t.Fatal("ashlar serve etcd reported no address")
	}
	return where.Grpc
}

func newShell(t *testing.T, endpoint string) *shell {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return &shell{t: t, program: etcdctl(t), endpoint: endpoint, client: c, marks: map[string]string{}}
}

// stores are the stores under test.
var stores = map[string]func(t *testing.T) string{
	"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "store.db") },
	"postgres": func(t *testing.T) string { return env.Postgres(t).StoreURL(t) },
}

// Every command answers as with etcd, or as its documented difference says.
func TestCommandsMatchEtcd(t *testing.T) {
	t.Parallel()
	program := ashlar(t)
	for _, one := range sessions {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			theirs := newShell(t, env.StartEtcd(t).Endpoint).all(one)
			for name, store := range stores {
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					ours := newShell(t, serve(t, program, store(t))).all(one)
					for i, step := range one.steps {
						compare(t, step, theirs[i], ours[i])
					}
				})
			}
		})
	}
}

// all runs a session.
func (s *shell) all(one session) (answers []answer) {
	s.t.Helper()
	for _, step := range one.steps {
		answers = append(answers, s.do(step))
	}
	return answers
}

func compare(t *testing.T, one step, theirs, ours answer) {
	t.Helper()
	command := strings.Join(one.args, " ")
	switch {
	case one.differs == "" && theirs != ours:
		t.Errorf("etcdctl %s\n  etcd: %q\n  here: %q", command, theirs, ours)
	case one.differs != "" && theirs == ours:
		t.Errorf("etcdctl %s is documented to differ, but does not: %q", command, ours)
	case one.differs != "" && !strings.Contains(ours.out+ours.err, one.here):
		t.Errorf("etcdctl %s\n  documented: %q\n  here: %q", command, one.here, ours)
	}
}
