package web_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/service/web"
)

// A caller that may not use a stored kind does not learn its name.
func TestKindsAreHidden(t *testing.T) {
	t.Parallel()
	denied := func(typ *resourcepb.Type) error {
		if typ.GetKind() != "SecretPlan" && typ.GetKind() != "SECRETplan" {
			return nil
		}
		return fmt.Errorf("%w: you may not use %s", registry.ErrDenied, registry.Name(typ))
	}
	types := registry.NewOpen(registry.Type{
		MayRead:  func(_ registry.Caller, id *resourcepb.ID, _ *resourcepb.Resource) error { return denied(id.GetType()) },
		MayList:  func(_ registry.Caller, typ *resourcepb.Type, _ *resourcepb.Tenancy) error { return denied(typ) },
		MayWrite: func(_ registry.Caller, res *resourcepb.Resource) error { return denied(res.GetId().GetType()) },
	})
	s := newSite(t, types, backends["memory"], transports["in the process"], nil)
	s.store(t, "core", "SecretPlan", "a")
	a := s.unchecked().get("/core/v1/secretplan/a")
	require.NotContains(t, a.body, "SecretPlan")
	require.Equal(t, http.StatusNotFound, a.code, "as for a kind that is not stored")
	s.store(t, "core", "SECRETplan", "a")
	require.NotContains(t, s.unchecked().get("/core/v1/secretplan/a").body, "SecretPlan")
}

// A handler remembers a bounded number of kinds, and a kind only for a short time: when the last resource of one spelling is deleted, its path is
// that of the remaining spelling.
func TestKindsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		backend := inmem.New(nil)
		defer backend.Close()
		s := service.New(backend, registry.NewOpen(registry.Type{}), nil)
		h := web.NewHandler(s.Client(), registry.NewOpen(registry.Type{}), &web.Options{Kinds: s.Kinds})
		store := func(kind string) *resourcepb.Resource {
			res, err := backend.WriteCAS(t.Context(), &resourcepb.Resource{Id: &resourcepb.ID{
				Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: kind}, Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"},
				Name: "a", Uid: "u",
			}})
			require.NoError(t, err)
			return res
		}
		get := func(kind string) int {
			answer := httptest.NewRecorder()
			h.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/demo/v1/"+kind+"/a", nil))
			return answer.Code
		}
		upper, _ := store("THing"), store("Thing")
		require.Equal(t, http.StatusOK, get("THing"))
		require.NoError(t, backend.DeleteCAS(t.Context(), upper.GetId(), upper.GetVersion()))
		time.Sleep(time.Minute)
		require.Equal(t, http.StatusOK, get("THing"), "the remaining spelling is Thing")
		for i := range 2500 {
			kind := fmt.Sprintf("Kind%d", i)
			store(kind)
			require.Equal(t, http.StatusOK, get(kind))
		}
		require.LessOrEqual(t, web.CachedKinds(h), 1000)
	})
}
