package etcdserver_test

import (
	"context"
	"maps"
	"net"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcdserver"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	_ "github.com/ashlar-dev/storage/sqlite"
)

// engines are the databases that need no server.
var engines = map[string]func(t *testing.T) string{
	"memory": func(*testing.T) string { return "mem:" },
	"sqlite": func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "store.db") },
}

// aloneOn are the engines for tests that compact, or need exact revisions: no other store shares their revisions.
var aloneOn = maps.Clone(engines)

// onEngines runs a test on each engine, with a client of a server of a new store.
func onEngines(t *testing.T, test func(t *testing.T, c *clientv3.Client)) {
	t.Helper()
	t.Parallel()
	onEach(t, engines, test)
}

// aloneOnEngines is onEngines for tests that compact, or need exact revisions.
func aloneOnEngines(t *testing.T, test func(t *testing.T, c *clientv3.Client)) {
	t.Helper()
	t.Parallel()
	onEach(t, aloneOn, test)
}

func onEach(t *testing.T, engines map[string]func(t *testing.T) string, test func(t *testing.T, c *clientv3.Client)) {
	t.Helper()
	for name, url := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, client(t, serve(t, fixture.Open(t, url(t)), nil)))
		})
	}
}

// serve serves a store and returns the address.
func serve(t *testing.T, b storage.Backend, o *etcdserver.Options) string {
	t.Helper()
	address, _ := start(t, b, o)
	return address
}

// start serves a store until the end of the test, and returns the address and the server.
func start(t *testing.T, b storage.Backend, o *etcdserver.Options) (string, *etcdserver.Server) {
	t.Helper()
	s, err := etcdserver.New(b, o)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	s.Register(server)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), s
}

func client(t *testing.T, address string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: time.Minute, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func ctx(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func put(t *testing.T, c *clientv3.Client, key, value string, opts ...clientv3.OpOption) int64 {
	t.Helper()
	r, err := c.Put(ctx(t), key, value, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}
