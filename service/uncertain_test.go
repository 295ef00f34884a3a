package service_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// uncertain is a store whose writes fail without a known outcome, and then with an error.
type uncertain struct {
	storage.Backend
	err error
}

func (u uncertain) WriteCAS(context.Context, *resourcepb.Resource) (*resourcepb.Resource, error) {
	return nil, fmt.Errorf("%w: %w", storage.ErrInconsistent, u.err)
}

// A write whose outcome is unknown stays unknown, whatever error an attempt of it had.
func TestUncertainWrite(t *testing.T) {
	t.Parallel()
	store := inmem.New(nil)
	for _, err := range []error{
		storage.ErrFenced, &storage.MovedError{Target: "elsewhere"}, storage.ErrCASFailure, storage.ErrTooLarge, storage.ErrWrongUid,
		&storage.DamagedError{ID: &resourcepb.ID{Name: "a"}, Err: errors.New("damaged")},
	} {
		data, e := anypb.New(&emptypb.Empty{})
		if e != nil {
			t.Fatal(e)
		}
		_, e = service.New(uncertain{store, err}, registry.NewOpen(registry.Type{}), nil).Client().Write(t.Context(), &resourcepb.WriteRequest{Resource: &resourcepb.Resource{
			Id:   &resourcepb.ID{Name: "a", Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Thing"}, Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"}},
			Data: data,
		}})
		if s := status.Convert(e); s.Code() != codes.Unavailable || s.Message() != storage.ErrInconsistent.Error() {
			t.Errorf("after %v the write failed with %v", err, e)
		}
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
