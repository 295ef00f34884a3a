package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage/cmd/ashlar/internal/cli"
)

// serveEtcd starts ashlar serve etcd as a separate process, on a free port, and waits until it listens.
func serveEtcd(t *testing.T, store string, args ...string) *serverProcess {
	t.Helper()
	s := startEtcd(t, store, args...)
	var where struct{ Grpc, Admin string }
	require.NoError(t, json.Unmarshal([]byte(s.waitForLog(`"msg":"listening"`)), &where))
	s.grpc, s.http = where.Grpc, where.Admin
	return s
}

// startEtcd starts ashlar serve etcd without waiting.
func startEtcd(t *testing.T, store string, args ...string) *serverProcess {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	all := []string{"serve", "etcd", "--store", store, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--log-format", "json",
		"--ready-timeout", waitTimeout.String()} // a stall of the machine fails no probe
	s := &serverProcess{t: t, cmd: exec.Command(self, append(all, args...)...), done: make(chan struct{})}
	s.cond = sync.NewCond(&s.mu)
	s.cmd.Env = append(os.Environ(), commandEnv...)
	out, err := s.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, s.cmd.Start())
	go func() {
		defer close(s.done)
		for scanner := newScanner(out); scanner.Scan(); {
			s.mu.Lock()
			s.log = append(s.log, scanner.Text())
			s.mu.Unlock()
			s.cond.Broadcast()
		}
		_ = s.cmd.Wait() // the exit code is read later
		s.cond.Broadcast()
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // it has ended or is no longer needed
		<-s.done
	})
	return s
}

func etcdClient(t *testing.T, s *serverProcess, config *tls.Config, options ...grpc.DialOption) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.grpc}, TLS: config, Logger: zap.NewNop(), DialOptions: options})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// Written keys exist after a restart, and a client's watch resumes at the next server.
func TestServeEtcd(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	store := "sqlite:" + filepath.Join(t.TempDir(), "kube.db")
	first, second := serveEtcd(t, store), serveEtcd(t, store)
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{first.grpc, second.grpc}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	w := c.Watch(ctx, "a", clientv3.WithPrefix(), clientv3.WithRev(1))
	_, err = c.Put(ctx, "a/1", "one")
	require.NoError(t, err)
	require.Equal(t, "a/1", string((<-w).Events[0].Kv.Key))
	_, err = c.Put(ctx, "large", strings.Repeat("x", 3<<19))
	require.ErrorIs(t, err, rpctypes.ErrRequestTooLarge)
	_, err = etcdClient(t, first, nil).Put(ctx, "larger", strings.Repeat("x", 2<<20))
	require.ErrorContains(t, err, "larger than max") // the error of etcd's client
	code, _ := first.get("/readyz")
	require.Equal(t, http.StatusOK, code)
	_, metrics := first.get("/metrics")
	require.Contains(t, metrics, `grpc_method="Put"`)
	first.signal(syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, first.end())
	_, err = etcdClient(t, second, nil).Put(ctx, "a/2", "two")
	require.NoError(t, err)
	answer := <-w
	require.NoError(t, answer.Err())
	require.Equal(t, "a/2", string(answer.Events[0].Kv.Key))
	second.signal(syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, second.end())
	third := serveEtcd(t, store)
	r, err := etcdClient(t, third, nil).Get(ctx, "a", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, r.Kvs, 2)
}

func TestServeEtcdDemandsCertificates(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	ours, others := newAuthority(t), newAuthority(t)
	cert, key := ours.sign("server")
	s := serveEtcd(t, memoryURL(), "--tls-cert", cert, "--tls-key", key, "--client-ca", ours.file)
	with := func(a *authority) *tls.Config {
		cert, key := a.sign("client")
		pair, err := tls.LoadX509KeyPair(cert, key)
		require.NoError(t, err)
		roots := x509.NewCertPool()
		roots.AddCert(ours.cert)
		return &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	_, err := etcdClient(t, s, with(ours)).Put(ctx, "a", "")
	require.NoError(t, err)
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err = etcdClient(t, s, with(others)).Get(short, "a")
	require.Error(t, err)
}

// A signal during the start ends the server without an error.
func TestServeEtcdStopsDuringStart(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	s := startEtcd(t, "postgres://u:p@"+silent.Addr().String()+"/x?sslmode=disable")
	conn, err := silent.Accept() // the store is being opened
	require.NoError(t, err)
	defer conn.Close()
	s.signal(syscall.SIGTERM)
	require.Equal(t, cli.ExitOK, s.end())
}

// A list that is sent in parts ends by itself: a stopping server completes it before it ends watches.
func TestServeEtcdDrainsLists(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	const keys = 20 // more than the buffers of the connection contain
	s := serveEtcd(t, memoryURL(), "--log-level", "debug", "--drain", "1h")
	c := etcdClient(t, s, nil, grpc.WithStaticStreamWindowSize(1<<16)) // otherwise the window may grow until the list fits
	for i := range keys {
		_, err := c.Put(ctx, fmt.Sprintf("list/%02d", i), strings.Repeat("x", 1000<<10))
		require.NoError(t, err)
	}
	w := c.Watch(ctx, "list/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	require.True(t, (<-w).Created)
	list, err := pb.NewKVClient(c.ActiveConnection()).RangeStream(ctx, &pb.RangeRequest{Key: []byte("list/"), RangeEnd: []byte("list0")})
	require.NoError(t, err)
	first, err := list.Recv()
	require.NoError(t, err)
	s.signal(syscall.SIGTERM)
	s.waitForLog(`"msg":"draining"`)
	received := len(first.RangeResponse.Kvs)
	for received < keys {
		if keys-received <= len(first.RangeResponse.Kvs) { // the last part is in buffers when the handler has returned
			s.waitForLog("KV/RangeStream")
			<-time.After(3 * time.Second) // a slow client
		}
		part, err := list.Recv()
		require.NoError(t, err)
		received += len(part.RangeResponse.Kvs)
	}
	_, err = list.Recv()
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, cli.ExitOK, s.end())
	_, drained, _ := strings.Cut(s.logText(), `"msg":"draining"`)
	listed, watchEnd := strings.Index(drained, "KV/RangeStream"), strings.Index(drained, "Watch/Watch")
	require.Positive(t, listed)
	require.Greater(t, watchEnd, listed, "a watch must end after the list")
}
