//go:build integration

package bench

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ashlar-dev/storage/internal/test/env"
)

// The variables with the paths of the compared servers of etcd's API; tools/bench.sh builds them. Each runs with its defaults.
const (
	kineVariable   = "ASHLAR_BENCH_KINE"
	ashlarVariable = "ASHLAR_BENCH_ASHLAR"
)

// apiServer is a server of etcd's API; start runs it in its own process and returns a client.
type apiServer struct {
	name  string
	start func(b *testing.B) *clientv3.Client
}

// sqliteServers returns kine and Ashlar, each on a new file.
func sqliteServers(b *testing.B) (kine, ours apiServer) {
	b.Helper()
	theirs, own := diskDir(b), filepath.Join(diskDir(b), "ashlar.db")
	return kineServer("sqlite://", theirs), ashlarServer("sqlite://" + own)
}

// syncedServers returns kine and Ashlar, each on a new file, with kine set to wait for the disk before it acknowledges a write, as
// Ashlar does. By default kine does not wait: a power loss then loses the last writes.
func syncedServers(b *testing.B) (kine, ours apiServer) {
	b.Helper()
	theirs, own := filepath.Join(diskDir(b), "kine.db"), filepath.Join(diskDir(b), "ashlar.db")
	const synced = "?_journal_mode=WAL&_synchronous=FULL&_busy_timeout=30000&_txlock=immediate&_stmt_cache_size=20&cache=shared"
	return kineServer("sqlite://"+theirs+synced, b.TempDir()), ashlarServer("sqlite://" + own)
}

// postgresServers returns kine and Ashlar on one server, at the container's own address.
func postgresServers(b *testing.B) (kine, ours apiServer) {
	b.Helper()
	ctx := context.Background()
	server := env.Postgres(b).Direct(b)
	pool := must(pgxpool.New(ctx, server.URL))
	b.Cleanup(pool.Close)
	database := server.Schema(b) // a unique name
	must(pool.Exec(ctx, "create database "+database))
	b.Cleanup(func() { must(pool.Exec(ctx, "drop database "+database+" with (force)")) })
	u := must(url.Parse(server.URL))
	u.Path = "/" + database
	return kineServer(u.String(), b.TempDir()), ashlarServer(server.StoreURL(b))
}

// kineServer returns kine on a database, with a working directory, which contains its default SQLite file.
func kineServer(endpoint, dir string) apiServer {
	return apiServer{name: "kine", start: func(b *testing.B) *clientv3.Client {
		return startServer(b, os.Getenv(kineVariable), dir, func(address string) []string {
			return []string{"--endpoint", endpoint, "--listen-address", "tcp://" + address, "--metrics-bind-address", "0"}
		})
	}}
}

// ashlarServer returns Ashlar on a store.
func ashlarServer(store string) apiServer {
	return apiServer{name: "ashlar", start: func(b *testing.B) *clientv3.Client {
		return startServer(b, os.Getenv(ashlarVariable), b.TempDir(), func(address string) []string {
			return []string{"serve", "etcd", "--store", store, "--listen", address, "--log-level", "warn"}
		})
	}}
}

// startServer runs a program until the benchmark ends, and waits until it answers.
func startServer(b *testing.B, program, dir string, args func(address string) []string) *clientv3.Client {
	b.Helper()
	if program == "" {
		b.Fatalf("%s and %s must contain the paths of the programs: make bench BACKEND=kine", kineVariable, ashlarVariable)
	}
	listener := must(net.Listen("tcp", "127.0.0.1:0"))
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		b.Fatal(err)
	}
	log := must(os.Create(filepath.Join(b.TempDir(), "log")))
	command := exec.Command(program, args(address)...)
	command.Dir, command.Stdout, command.Stderr = dir, log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		b.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = command.Wait() // its log contains the reason
	}()
	b.Cleanup(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			_ = command.Process.Kill()
			<-ended
		}
		if err := log.Close(); err != nil {
			b.Error(err)
		}
	})
	client := must(clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()}))
	b.Cleanup(func() { client.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		_, err := client.Get(ctx, "is it there")
		if err == nil {
			return client
		}
		select {
		case <-ended:
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
			continue
		}
		said := must(os.ReadFile(log.Name()))
		b.Fatalf("%s does not answer: %v\n%s", filepath.Base(program), err, said[max(0, len(said)-4000):])
	}
}

// diskDir returns a new directory on a real disk.
func diskDir(b *testing.B) string {
	b.Helper()
	dir := must(os.MkdirTemp(os.Getenv("ASHLAR_BENCH_DIR"), "server-"))
	b.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Error(fmt.Errorf("delete the benchmark's files: %w", err))
		}
	})
	return dir
}
