package service

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Expire deletes a resource at a version, as Delete does. It is for package expiry: the caller has proven that the time to live of the version has
// passed. Expire uses neither the registry nor hooks, because resources outlive the registration of their types. It does nothing if the resource with
// the uid in id is not stored, and fails with [storage.ErrCASFailure] if another version is stored.
func (s *Server) Expire(ctx context.Context, id *resourcepb.ID, version string) (err error) {
	ctx, audited := s.audit(ctx, "Expire", id)
	defer audited(&err)
	return s.deleteIf(ctx, id, true, func(res *resourcepb.Resource) error {
		if res.GetVersion() != version {
			return storage.ErrCASFailure
		}
		return nil
	})
}
