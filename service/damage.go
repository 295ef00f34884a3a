package service

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage"
)

// skipDamaged returns the SkipDamaged function of a list: it omits a damaged resource that the caller may not name, as the list omits a
// resource that the caller may not read. Other callers get an error with the name, because their list would have an unnoticed gap.
func (v *view) skipDamaged(ctx context.Context) func(*storage.DamagedError) bool {
	return func(damaged *storage.DamagedError) bool {
		if may, err := v.mayName(ctx, damaged.ID); may || err != nil {
			return false
		}
		v.server.opts.Logger.WarnContext(ctx, "a list omits damaged data that its caller may not read", "error", damaged)
		return true
	}
}

// errHiddenDamage is the error for a damaged resource that the caller may not name.
var errHiddenDamage = reasonError(codes.DataLoss, "DAMAGED", "the store holds a damaged resource; the server's log has its name")

// hideDamaged returns the error of a list or a watch without the name of a damaged resource that the caller may not name.
func (v *view) hideDamaged(ctx context.Context, err error) error {
	var damaged *storage.DamagedError
	if !errors.As(err, &damaged) {
		return err
	}
	if may, _ := v.mayName(ctx, damaged.ID); may {
		return err
	}
	return v.server.hideDamaged(ctx, err)
}

// hideDamaged returns an error without the name of a damaged resource, which it logs.
func (s *Server) hideDamaged(ctx context.Context, err error) error {
	if damaged := (*storage.DamagedError)(nil); !errors.As(err, &damaged) {
		return err
	}
	s.opts.Logger.ErrorContext(ctx, "the store holds damaged data", "error", err)
	return errHiddenDamage
}
