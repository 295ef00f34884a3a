package main

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// The command shows the holder and the queue of each lease, and the newest holder only.
func TestControllers(t *testing.T) {
	t.Parallel()
	url := fileURL(t)
	backend := fixture.Open(t, url)
	c := newRunner(t, url)
	require.Empty(t, c.ok("", "controllers"))
	run := func(name string) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		client := service.New(backend, registry.NewOpen(registry.Type{}), nil).Client()
		m := controller.NewManager(client, &controller.Options{Name: name, Leases: backend, LeaseTTL: time.Second, Logger: slog.New(slog.DiscardHandler)})
		require.NoError(t, m.Register(controller.NewController("scaler", &resourcepb.Type{Group: "apps", GroupVersion: "v1", Kind: "Deployment"}).
			WithReconciler(controller.ReconcileFunc(func(context.Context, controller.Runtime, controller.Request) error { return nil }))))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = m.Run(ctx)
		}()
		return func() {
			cancel()
			<-ended
		}
	}
	held := func(name string) func() bool {
		return func() bool {
			out := lines(c.ok("", "controllers"))
			return len(out) == 2 && strings.Join(strings.Fields(out[1])[:5], " ") == "scaler apps.v1.Deployment singleton 0 "+name
		}
	}
	stopFirst := run("first")
	require.Eventually(t, held("first"), fixture.Timeout, 50*time.Millisecond)
	stopSecond := run("second")
	defer stopSecond()
	stopFirst()
	require.Eventually(t, held("second"), fixture.Timeout, 50*time.Millisecond)
	require.Contains(t, c.ok("", "controllers", "-o", "json"), `"controller":"scaler"`)
}
