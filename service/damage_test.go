package service_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/sqlite"
)

// secretsOf is a type whose resources named "secret…" are readable for the token "admin" only.
func secretsOf(t *testing.T) *registry.Registry {
	return albums(t, registry.Type{MayRead: func(c registry.Caller, id *resourcepb.ID, _ *resourcepb.Resource) error {
		if strings.HasPrefix(id.GetName(), "secret") && c != tokenCaller("admin") {
			return registry.ErrDenied
		}
		return nil
	}})
}

// tokenCaller is a caller whose token names it.
type tokenCaller string

func (tokenCaller) OperatorRead() error  { return nil }
func (tokenCaller) OperatorWrite() error { return nil }

// Lists omit damaged resources that their caller may not read, on pages of any size. Other lists, and watches, fail; the error names the
// resource only to callers that may read it.
func TestDamagedResourcesInLists(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	b, err := sqlite.New(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	var tenancy *resourcepb.Tenancy
	for _, name := range []string{"a", "secret-1", "secret-2", "secret-3", "t", "u"} {
		tenancy = store(t.Context(), t, b, album(name, "x"), "here", "v1").GetId().GetTenancy()
	}
	db, err := sqlite3.Open(path)
	if err == nil {
		err = errors.Join(db.Exec("UPDATE resources SET data = x'ff' WHERE instr(key, 'secret') > 0"), db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	c := func(token string) *service.Server {
		return service.New(b, secretsOf(t), &service.Options{Authenticate: func(context.Context, string, *resourcepb.Tenancy) (registry.Caller, error) {
			return tokenCaller(token), nil
		}})
	}
	for limit := range int32(8) {
		request := &resourcepb.ListRequest{Type: albumType, Tenancy: tenancy, Limit: limit}
		var names []string
		for pages := 0; pages == 0 || request.GetContinue() != ""; pages++ {
			page, err := c("user").List(t.Context(), request)
			if err != nil || pages > 10 {
				t.Fatalf("limit %d, page %d: %v", limit, pages, err)
			}
			for _, res := range page.GetResources() {
				names = append(names, res.GetId().GetName())
			}
			request.Continue = page.GetContinue()
		}
		if got := strings.Join(names, " "); got != "a t u" {
			t.Errorf("limit %d: the list has %s", limit, got)
		}
		_, err := c("admin").List(t.Context(), &resourcepb.ListRequest{Type: albumType, Tenancy: tenancy, Limit: limit})
		if limit != 1 && (status.Code(err) != codes.DataLoss || !strings.Contains(err.Error(), "secret-1")) {
			t.Errorf("limit %d: the list of an operator: %v", limit, err)
		}
	}
	for token, named := range map[string]bool{"user": false, "admin": true} {
		w, err := c(token).Client().WatchList(t.Context(), &resourcepb.WatchListRequest{Type: albumType, Tenancy: tenancy})
		for err == nil {
			_, err = w.Recv()
		}
		if status.Code(err) != codes.DataLoss || strings.Contains(err.Error(), "secret-1") != named {
			t.Errorf("the watch of %s: %v", token, err)
		}
	}
}
