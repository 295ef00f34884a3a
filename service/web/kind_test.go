package web_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
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
	require.Equal(t, http.StatusBadRequest, a.code, "as for a kind that is not stored")
	s.store(t, "core", "SECRETplan", "a")
	require.NotContains(t, s.unchecked().get("/core/v1/secretplan/a").body, "SecretPlan")
}
