package client_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// A client of a server whose store has moved learns that from each call and from its watches, which do not resume. No retry can help, so the code
// is not Unavailable. The name of the other store is for the server's operator.
func TestMovedStore(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	ctx, b := timeoutContext(t), s.dial(t)
	stored, err := b.WriteCAS(ctx, album("a", "1"))
	require.NoError(t, err)
	open, err := b.WatchList(ctx, albums, shop, "")
	require.NoError(t, err)
	defer open.Close()
	require.Equal(t, "upsert a", next(t, open))
	require.Equal(t, "end of snapshot", next(t, open))

	mover, ok := storage.As[driver.GuardedMover](s.store)
	require.True(t, ok)
	state, err := mover.Fence(ctx)
	require.NoError(t, err)
	closed := driver.Fence{Target: "mem://secret-host"}
	epoch, err := mover.SetFenceAt(ctx, &closed, state.Epoch)
	require.NoError(t, err)
	_, err = b.WriteCAS(ctx, stored)
	require.ErrorIs(t, err, storage.ErrFenced)
	require.NotErrorIs(t, err, storage.ErrMoved, "while the store is being moved, a retry can help")
	moved := driver.Fence{Target: "mem://secret-host", Moved: true}
	_, err = mover.SetFenceAt(ctx, &moved, epoch)
	require.NoError(t, err)

	for name, call := range map[string]func() error{
		"write":  func() error { _, err := b.WriteCAS(ctx, stored); return err },
		"delete": func() error { return b.DeleteCAS(ctx, stored.GetId(), stored.GetVersion()) },
		"read":   func() error { _, err := b.Read(ctx, storage.StrongConsistency, stored.GetId()); return err },
		"list":   func() error { _, err := b.List(ctx, storage.StrongConsistency, albums, shop, ""); return err },
		"watch":  func() error { _, err := b.WatchList(ctx, albums, shop, ""); return err },
		"an open watch": func() error {
			_, err := open.Next(ctx)
			require.ErrorIs(t, err, storage.ErrWatchClosed)
			return err
		},
	} {
		err := call()
		require.ErrorIs(t, err, storage.ErrMoved, name)
		require.ErrorIs(t, err, storage.ErrFenced, name)
		var move *storage.MovedError
		require.True(t, errors.As(err, &move), name)
		require.NotContains(t, err.Error()+move.Target, "secret-host", name)
	}
	conn, err := grpc.NewClient(s.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	_, err = resourcegrpc.NewResourceServiceClient(conn).Write(ctx, &resourcepb.WriteRequest{Resource: stored})
	require.Equal(t, codes.FailedPrecondition, status.Code(err))
}
