package client_test

import (
	"context"
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/client"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/typed"
)

type (
	userV1 struct {
		Name string `json:"name"`
	}
	userV2 struct {
		Names []string `json:"names"`
		Mail  string   `json:"mail,omitempty"`
	}
)

// Typed clients of two versions share the resources of a server, over a connection and in its process.
func TestTypedClientsOfTwoVersions(t *testing.T) {
	t.Parallel()
	v1, v2 := typed.NewType("demo", "v1", "User"), typed.NewType("demo", "v2", "User")
	types, err := registry.New(
		registry.Type{Type: v2, Proto: &structpb.Struct{}, Scope: registry.ScopeNamespace},
		registry.Type{
			Type: v1, Proto: &structpb.Struct{}, Scope: registry.ScopeNamespace,
			Conversion: registry.ConvertJSON("v2", func(in userV2) (userV1, error) {
				if len(in.Names) == 0 {
					return userV1{}, fmt.Errorf("the user has no name")
				}
				return userV1{in.Names[0]}, nil
			}, func(in userV1, stored *userV2) (userV2, error) {
				out := userV2{Names: []string{in.Name}}
				if stored != nil && len(stored.Names) > 0 {
					out.Names = append(out.Names, stored.Names[1:]...)
				}
				return out, nil
			}),
		},
	)
	require.NoError(t, err)
	store := inmem.New(nil)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	server := service.New(store, types, nil)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	listening := grpc.NewServer()
	server.Register(listening)
	go func() { _ = listening.Serve(l) }() // it ends when it is stopped
	t.Cleanup(listening.Stop)
	dialed, err := client.Dial(client.Options{Address: l.Addr().String(), Types: []*resourcepb.Type{v1}})
	require.NoError(t, err)
	newer, err := client.Dial(client.Options{Address: l.Addr().String()})
	require.NoError(t, err)
	for name, b := range map[string]storage.Backend{"connection": dialed, "process": client.New(server, v1)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() { require.NoError(t, b.Close()) })
			ctx, older, latest := timeoutContext(t), typed.NewJSON[userV1](b, v1), typed.NewJSON[userV2](newer, v2)
			tenancy := typed.NewTenancy("default", name)
			changeUsers(ctx, t, older.WithTenancy(tenancy), latest.WithTenancy(tenancy))
		})
	}
	t.Cleanup(func() { require.NoError(t, newer.Close()) })
}

// changeUsers changes users by clients of both versions.
func changeUsers(ctx context.Context, t *testing.T, older *typed.Client[userV1], latest *typed.Client[userV2]) {
	t.Helper()
	_, err := older.Create(ctx, typed.Object[userV1]{ID: older.ID(nil, "a"), Data: userV1{"Ada"}})
	require.NoError(t, err)
	_, err = latest.Update(ctx, latest.ID(nil, "a"), func(o *typed.Object[userV2]) error {
		o.Data.Names, o.Data.Mail = append(o.Data.Names, "King"), "a@b.example"
		return nil
	})
	require.NoError(t, err)
	seen := make(chan string, 10)
	following, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		for ev, err := range older.Follow(following, nil, "", typed.FollowOptions{}) {
			switch {
			case err != nil:
				seen <- err.Error()
			case ev.New != nil:
				seen <- ev.New.ID.GetType().GetGroupVersion() + ev.New.Data.Name
			}
		}
	}()
	require.Equal(t, "v1Ada", <-seen)
	unchanged, err := older.Update(ctx, older.ID(nil, "a"), func(*typed.Object[userV1]) error { return nil })
	require.NoError(t, err)
	require.Equal(t, "Ada", unchanged.Data.Name)
	_, err = older.Update(ctx, older.ID(nil, "a"), func(o *typed.Object[userV1]) error { o.Data.Name = "Augusta"; return nil })
	require.NoError(t, err)
	require.Equal(t, "v1Augusta", <-seen)
	now, err := latest.Get(ctx, storage.StrongConsistency, latest.ID(nil, "a"))
	require.NoError(t, err)
	require.Equal(t, userV2{[]string{"Augusta", "King"}, "a@b.example"}, now.Data)
	for o, err := range older.List(ctx, storage.StrongConsistency, nil, "") {
		require.NoError(t, err)
		require.Equal(t, userV1{"Augusta"}, o.Data)
	}
	_, err = latest.Update(ctx, latest.ID(nil, "a"), func(o *typed.Object[userV2]) error { o.Data.Names = nil; return nil })
	require.NoError(t, err)
	_, err = older.Get(ctx, storage.StrongConsistency, older.ID(nil, "a"))
	require.ErrorIs(t, err, client.ErrConversion)
	require.ErrorContains(t, err, `demo/User "a"`)
	for _, err := range older.List(ctx, storage.StrongConsistency, nil, "") {
		require.ErrorIs(t, err, client.ErrConversion)
	}
}
