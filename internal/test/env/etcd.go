//go:build integration

package env

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ashlar-dev/storage/internal/test/images"
)

// EtcdServer is an etcd server of one member, or one member of a cluster.
type EtcdServer struct {
	*Container

	// Endpoint is the client address, as host:port.
	Endpoint string

	givenURL *url.URL // the server's URL, if it was given by URL
}

var sharedEtcd shared[*EtcdServer]

// Etcd returns the server that all tests of the binary share: a container, or the one at ASHLAR_TEST_ETCD_URL.
func Etcd(t testing.TB) *EtcdServer {
	t.Helper()
	return sharedEtcd.get(t, "etcd", func() (*EtcdServer, func() error, error) {
		if given := os.Getenv("ASHLAR_TEST_ETCD_URL"); given != "" {
			u, err := url.Parse(given)
			if err != nil || u.Host == "" {
				return nil, nil, fmt.Errorf("ASHLAR_TEST_ETCD_URL is not of the form etcd://host:port")
			}
			return &EtcdServer{Container: &Container{Addr: u.Host}, Endpoint: u.Host, givenURL: u}, nil, nil
		}
		c, err := run(context.Background(), etcdSpec())
		if err != nil {
			return nil, nil, err
		}
		return &EtcdServer{Container: c, Endpoint: c.Addr}, c.remove, nil
	})
}

// StartEtcd starts an etcd server of one member for one test. flags are passed to it, such as "--quota-backend-bytes=16777216".
func StartEtcd(t testing.TB, flags ...string) *EtcdServer {
	t.Helper()
	c := start(t, etcdSpec(flags...))
	return &EtcdServer{Container: c, Endpoint: c.Addr}
}

func etcdSpec(flags ...string) spec {
	return spec{
		name: "etcd", image: images.Etcd(), port: 2379, wait: true,
		command: func(addr string) []string {
			return append([]string{
				"/usr/local/bin/etcd", "--name=single", "--data-dir=/etcd-data",
				"--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://" + addr,
				"--log-level=warn",
			}, flags...)
		},
		ready: pingEtcd,
	}
}

// pingEtcd does a linearizable read, which needs a leader. A server that demands a password has one as well.
func pingEtcd(ctx context.Context, addr string) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Get(ctx, "ashlar-testenv")
	if err != nil && strings.Contains(err.Error(), "user name is empty") {
		return nil
	}
	return err
}

// Client opens a client, closed at the end of the test.
func (s *EtcdServer) Client(t testing.TB) *clientv3.Client {
	t.Helper()
	cfg := clientv3.Config{Endpoints: strings.Split(s.Endpoint, ","), DialTimeout: 30 * time.Second, Logger: zap.NewNop()}
	if s.givenURL != nil && s.givenURL.User != nil {
		cfg.Username = s.givenURL.User.Username()
		cfg.Password, _ = s.givenURL.User.Password()
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		t.Fatalf("env: connecting to etcd: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Prefix returns a key prefix that no other test uses, without surrounding slashes. The end of the test deletes all keys with it.
func (s *EtcdServer) Prefix(t testing.TB) string {
	t.Helper()
	prefix := "t-" + unique()
	if s.givenURL != nil {
		// A container is removed as a whole; a server given by URL must be left unchanged.
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			for _, p := range []string{prefix, "/" + prefix} {
				if _, err := s.Client(t).Delete(ctx, p, clientv3.WithPrefix()); err != nil {
					t.Logf("env: keys under %s stay: %v", p, err)
				}
			}
		})
	}
	return prefix
}

// StoreURL returns the URL of an empty store with a prefix of its own. params are further parameters, as "name=value".
func (s *EtcdServer) StoreURL(t testing.TB, params ...string) string {
	t.Helper()
	return s.StoreURLIn(t, s.Prefix(t), params...)
}

// StoreURLIn returns the URL of the store with a prefix.
func (s *EtcdServer) StoreURLIn(t testing.TB, prefix string, params ...string) string {
	t.Helper()
	u := url.URL{Scheme: "etcd", Host: s.Endpoint, Path: "/" + prefix}
	if s.givenURL != nil {
		u.Scheme, u.User, u.RawQuery = s.givenURL.Scheme, s.givenURL.User, s.givenURL.RawQuery
	}
	return withParams(t, u.String(), params...)
}
