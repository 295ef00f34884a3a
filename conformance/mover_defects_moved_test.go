package conformance

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// readable answers reads after the store has moved.
type readable struct{ storage.Backend }

func (b readable) Read(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	return b.Backend.Read(driver.WithMovedReads(ctx), consistency, id)
}

// listable answers lists after the store has moved.
type listable struct{ storage.Backend }

func (b listable) List(ctx context.Context, consistency storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) ([]*resourcepb.Resource, error) {
	return b.Backend.List(driver.WithMovedReads(ctx), consistency, typ, tenancy, prefix)
}

// pageable begins and continues listings after the store has moved.
type pageable struct{ storage.Pager }

func (p pageable) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string, opts storage.ListOptions) (storage.Page, error) {
	return p.Pager.ListPage(driver.WithMovedReads(ctx), typ, tenancy, prefix, opts)
}

// continuing continues listings after the store has moved.
type continuing struct{ storage.Pager }

func (p continuing) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string, opts storage.ListOptions) (storage.Page, error) {
	if opts.Continue != "" {
		ctx = driver.WithMovedReads(ctx)
	}
	return p.Pager.ListPage(ctx, typ, tenancy, prefix, opts)
}

// scannable answers scans after the store has moved.
type scannable struct{ history.Historian }

func (h scannable) Scan(ctx context.Context, span history.Range, opts history.ScanOptions) (history.ScanResult, error) {
	return h.Historian.Scan(driver.WithMovedReads(ctx), span, opts)
}

// onlyStrong makes eventual reads strong.
type onlyStrong struct{ storage.Backend }

func (b onlyStrong) Read(ctx context.Context, _ storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	return b.Backend.Read(ctx, strong, id)
}

// sameForTools refuses the strong reads of a tool too.
type sameForTools struct{ storage.Backend }

func (b sameForTools) Read(_ context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	return b.Backend.Read(context.Background(), consistency, id)
}
