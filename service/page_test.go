package service_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// Page tokens do not name hidden resources. Visible resources appear once, in order, on pages of any size.
func TestPagesHideUnreadableResources(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	b := inmem.New(nil)
	defer b.Close()
	types := albums(t, registry.Type{MayRead: func(_ registry.Caller, id *resourcepb.ID, _ *resourcepb.Resource) error {
		if strings.Contains(id.GetName(), "secret") {
			return registry.ErrDenied
		}
		return nil
	}})
	c := service.New(b, types, nil).Client()
	owner := store(ctx, t, b, album("owner", "1"), "here", "v1")
	var want []string
	for i, runs := 0, []int{3, 1, 0, 2, 5, 0, 0, 1, 9}; i < len(runs); i++ { // of secrets after each album
		name := fmt.Sprintf("x%02d", i)
		want = append(want, name)
		for j := range runs[i] + 1 {
			if j > 0 {
				name = fmt.Sprintf("x%02d-secret-%d", i, j)
			}
			res := album(name, "1")
			res.Owner = owner.GetId()
			store(ctx, t, b, res, "here", "v1")
		}
		store(ctx, t, b, album(fmt.Sprintf("x%02d-z-of-another-version", i), "1"), "here", "v2")
	}
	for limit := range int32(30) {
		limit++
		for _, listing := range []struct {
			what string
			page func(string) ([]*resourcepb.Resource, string, error)
		}{
			{"List", func(token string) ([]*resourcepb.Resource, string, error) {
				out, err := c.List(ctx, &resourcepb.ListRequest{
					Type: albumType, Tenancy: owner.GetId().GetTenancy(), NamePrefix: "x", Limit: limit, Continue: token,
				})
				return out.GetResources(), out.GetContinue(), err
			}},
			{"ListByOwner", func(token string) ([]*resourcepb.Resource, string, error) {
				out, err := c.ListByOwner(ctx, &resourcepb.ListByOwnerRequest{Owner: owner.GetId(), Limit: limit, Continue: token})
				return out.GetResources(), out.GetContinue(), err
			}},
		} {
			var got []string
			for token, pages := "", 0; ; pages++ {
				page, next, err := listing.page(token)
				if err != nil || len(page) > int(limit) || pages > 2*len(want)+1 {
					t.Fatalf("%s by %d: page %d has %d resources, and %v", listing.what, limit, pages, len(page), err)
				}
				for _, res := range page {
					got = append(got, res.GetId().GetName())
				}
				if raw, err := base64.RawURLEncoding.DecodeString(next); err != nil || strings.Contains(string(raw), "secret") {
					t.Fatalf("%s by %d: a token has the content %q: %v", listing.what, limit, raw, err)
				}
				if token = next; token == "" {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s by %d shows %v, not %v", listing.what, limit, got, want)
			}
		}
	}
}
