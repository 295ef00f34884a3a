//go:build integration

package etcd_test

import (
	"errors"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// authServer is a server with authentication. It has the users root and app. app has permissions for one prefix.
type authServer struct {
	*env.EtcdServer
	root   *clientv3.Client
	prefix string
}

const password = "open-sesame"

func newAuthServer(t *testing.T) *authServer {
	t.Helper()
	g := &authServer{EtcdServer: env.StartEtcd(t)}
	g.prefix = g.Prefix(t)
	ctx, c := fixture.Context(t), g.Client(t)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(c.UserAdd(ctx, "root", password))
	must(c.RoleAdd(ctx, "root"))
	must(c.UserGrantRole(ctx, "root", "root"))
	must(c.UserAdd(ctx, "app", password))
	must(c.RoleAdd(ctx, "app"))
	must(c.RoleGrantPermission(ctx, "app", g.prefix+"/", clientv3.GetPrefixRangeEnd(g.prefix+"/"), clientv3.PermissionType(clientv3.PermReadWrite)))
	must(c.UserGrantRole(ctx, "app", "app"))
	must(c.AuthEnable(ctx))
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{g.Endpoint}, Username: "root", Password: password, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	g.root = root
	return g
}

// url returns the URL of app's store at an address.
func (g *authServer) url(t *testing.T, addr, password string) string {
	return strings.Replace(g.StoreURLIn(t, g.prefix), "etcd://"+g.Endpoint, "etcd://app:"+password+"@"+addr, 1)
}

// The backend needs permissions only for its own prefix.
func TestPermissions(t *testing.T) {
	t.Parallel()
	g := newAuthServer(t)
	b := open(t, g.url(t, g.Endpoint, password))
	w := fixture.WatchChanges(t, b)
	res := fixture.Write(t, b, service("a"))
	second := fixture.Write(t, b, at(res, res.Version))
	wantNext(t, w, upserted(res), upserted(second))
	if _, err := b.Commit(fixture.Context(t), []storage.Op{{Delete: second.Id, Version: second.Version}}); err != nil {
		t.Fatal(err)
	}
	wantNext(t, w, deleted(second))

	elsewhere := strings.Replace(g.url(t, g.Endpoint, password), g.prefix, "elsewhere", 1)
	if _, err := etcd.Open(fixture.Context(t), parsed(t, elsewhere)); err == nil || errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("open a prefix without permission: %v, want a rejection", err)
	}
	_, err := etcd.Open(fixture.Context(t), parsed(t, g.url(t, g.Endpoint, "wrong-password")))
	if err == nil || errors.Is(err, storage.ErrInconsistent) || strings.Contains(err.Error(), "wrong-password") {
		t.Errorf("open with a wrong password: %v, want a rejection that does not show it", err)
	}
}

// A restarted server rejects all tokens, like expired ones. It restarts once with an open watch stream, and once without, so the next
// stream starts with an old token.
func TestTokenExpiry(t *testing.T) {
	t.Parallel()
	g := newAuthServer(t)
	proxy := faultproxy.New(t, g.Endpoint)
	b := open(t, g.url(t, proxy.Addr(), password))
	w := fixture.WatchChanges(t, b)
	res := fixture.Write(t, b, service("a"))
	wantNext(t, w, upserted(res))

	g.Restart(t)
	res2 := fixture.Write(t, b, at(res, res.Version))
	wantNext(t, w, upserted(res2))

	proxy.Refuse()
	g.Restart(t)
	proxy.Resume()
	res3 := fixture.Write(t, b, at(res2, res2.Version))
	wantNext(t, w, upserted(res3))
	// A change of the users outdates all tokens.
	if _, err := g.root.UserAdd(fixture.Context(t), "another", password); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	res4 := fixture.Write(t, b, at(res3, res3.Version))
	wantNext(t, w, upserted(res4))
}

// The server rejects the watch while app lacks the permission. Once app has the permission again, the watch gets the writes of the
// meantime.
func TestRejectedWatch(t *testing.T) {
	t.Parallel()
	g := newAuthServer(t)
	proxy := faultproxy.New(t, g.Endpoint)
	b := open(t, g.url(t, proxy.Addr(), password))
	w := fixture.WatchChanges(t, b)
	first := fixture.Write(t, b, service("a"))
	wantNext(t, w, upserted(first))

	if _, err := g.root.UserRevokeRole(fixture.Context(t), "app", "app"); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	if _, err := b.WriteCAS(fixture.Context(t), at(first, first.Version)); err == nil || errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("a write without permission: %v, want a rejection", err)
	}
	if _, err := g.root.UserAdd(fixture.Context(t), "writer", password); err != nil {
		t.Fatal(err)
	}
	if _, err := g.root.UserGrantRole(fixture.Context(t), "writer", "app"); err != nil {
		t.Fatal(err)
	}
	writer := open(t, strings.Replace(g.url(t, g.Endpoint, password), "app:", "writer:", 1))
	second := fixture.Write(t, writer, at(first, first.Version))
	fixture.Remove(t, writer, second)
	if _, err := g.root.UserGrantRole(fixture.Context(t), "app", "app"); err != nil {
		t.Fatal(err)
	}
	wantNext(t, w, upserted(second), deleted(second))
}
