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

// guarded is a server that wants to know who asks: root, and a user who may touch one prefix.
type guarded struct {
	*env.EtcdServer
	root   *clientv3.Client
	prefix string
}

const password = "open-sesame"

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{EtcdServer: env.StartEtcd(t)}
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

// url is that of the app's store, by way of an address.
func (g *guarded) url(t *testing.T, addr, password string) string {
	return strings.Replace(g.StoreURLIn(t, g.prefix), "etcd://"+g.Endpoint, "etcd://app:"+password+"@"+addr, 1)
}

// TestPermissions has rights to its own prefix alone, so nothing that the backend does reaches beyond it.
func TestPermissions(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
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
		t.Errorf("open a prefix without permission: %v, want a refusal", err)
	}
	_, err := etcd.Open(fixture.Context(t), parsed(t, g.url(t, g.Endpoint, "wrong-password")))
	if err == nil || errors.Is(err, storage.ErrInconsistent) || strings.Contains(err.Error(), "wrong-password") {
		t.Errorf("open with a wrong password: %v, want a refusal that does not show it", err)
	}
}

// TestTokenExpiry has the server forget all tokens, which it does when they expire, and when it is restarted: also while no
// watch stream stands, so that the next one comes with an old token.
func TestTokenExpiry(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
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
	// A change of the users makes every token one of an old revision.
	if _, err := g.root.UserAdd(fixture.Context(t), "another", password); err != nil {
		t.Fatal(err)
	}
	proxy.Cut()
	res4 := fixture.Write(t, b, at(res3, res3.Version))
	wantNext(t, w, upserted(res4))
}

// TestRefusedWatch has the server refuse the watch for a while, because the permission is gone. What is written meanwhile comes
// once it is back.
func TestRefusedWatch(t *testing.T) {
	t.Parallel()
	g := newGuarded(t)
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
		t.Errorf("a write without permission: %v, want a refusal", err)
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
